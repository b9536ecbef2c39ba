"""garbage.py: in a process that serves, what was loaded is looked at no more, and full collections are rare."""

import subprocess
import sys

SETTLED = """
import gc
from fairstep.garbage import FULL_EVERY, settle_garbage

class Loop:
    def __init__(self):
        self.me = self

lost, kept = Loop(), [Loop() for _ in range(1000)]
del lost
young, middle, _ = gc.get_threshold()
settle_garbage()
assert gc.get_threshold() == (young, middle, FULL_EVERY)
assert not any(isinstance(each, Loop) for each in gc.get_objects()), "what was loaded is still looked at"
assert gc.collect() == 0, "garbage was kept"
Loop()
assert gc.collect() > 0, "new garbage is not found"
"""


def test_what_was_loaded_is_left_out_and_garbage_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
