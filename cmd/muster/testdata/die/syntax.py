"""The script is not Python: no worker of any node gets far."""
# code: 1
# class: failed
# rank: any
# exit: 1
# exception: SyntaxError: '(' was never closed
# kind: syntax
# says: SyntaxError: '(' was never closed; the script is not valid Python
print("epoch", (1
