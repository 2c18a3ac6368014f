"""A training with the arguments of sd-scripts' sdxl_train.py, which stands beside a script of accelerate's in place of it."""
import argparse
import pathlib
import runpy

parser = argparse.ArgumentParser()
for name in ("pretrained_model_name_or_path", "train_data_dir", "output_dir"):
    parser.add_argument("--" + name, required=True)
args = parser.parse_args()
assert vars(args) == {"pretrained_model_name_or_path": "/mnt/model", "train_data_dir": "/mnt/data", "output_dir": "/mnt/output"}, args
runpy.run_path(str(pathlib.Path(__file__).with_name("train.py")), run_name="__main__")
