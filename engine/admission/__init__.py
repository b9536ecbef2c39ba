"""The door in: what is refused before it waits. Pure: no torch, no clock, no I/O."""
