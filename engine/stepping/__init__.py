"""The step loop: sequences, pages, prefix cache, plan, commit. Pure: no torch, no clock, no I/O."""
