"""The command line has an argument that the script does not know."""
# code: 2
# class: failed
# rank: any
# exit: 2
# kind: arguments
# says: exited with code 2; the script refused its arguments
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
