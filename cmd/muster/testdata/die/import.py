"""A module is not installed, on any node."""
# code: 1
# class: failed
# rank: any
# exit: 1
# exception: ModuleNotFoundError: No module named 'flash_attn_of_tomorrow'
# kind: module-missing
# says: ModuleNotFoundError: No module named 'flash_attn_of_tomorrow'; a Python module is not installed
import flash_attn_of_tomorrow
