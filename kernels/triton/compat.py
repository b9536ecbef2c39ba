"""What differs between the versions of triton that fairstep runs with, 3.6 to 3.9: the one place for it."""

# said at every launch: what a launch without it means changes after 3.9, which warns
LAUNCH_OPTIONS = {"enable_fp_fusion": True}  # a * b + c is rounded once
