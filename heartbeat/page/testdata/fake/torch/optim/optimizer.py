import os
from collections import OrderedDict

_hooks = OrderedDict()  # which must not change while they are called

if os.environ.get("FAKE_TORCH") != "old":

    def register_optimizer_step_post_hook(hook):
        _hooks[len(_hooks)] = hook


class Optimizer:
    def __init__(self):
        self._hook_for_profile()

    def _hook_for_profile(self):
        pass

    def step(self):
        for hook in _hooks.values():
            hook(self, (), {})
