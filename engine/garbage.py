"""The garbage collector in a process that serves for long: what was loaded is left out, full collections are rare.

A full collection holds everything up for as long as there are objects: over a second with 100,000 requests waiting.
References free nearly all there is; what a collection alone can free waits a little longer.
"""

import gc

FULL_EVERY = 1000  # collections of the middle generation; Python's own default is 10


def settle_garbage() -> None:
    """To be called once, when all is loaded, in a process of our own."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_EVERY)
