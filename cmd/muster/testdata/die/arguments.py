"""The command line has an argument that the script does not know."""
# code: 2
# class: failed
# rank: any
# exit: 2
# kind: arguments
# says: exited with code 2; the script refused its arguments: arguments.py: error: the following arguments are required: --lr; all 2 nodes stopped; exit 2
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
