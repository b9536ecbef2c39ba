"""The waiting room: who goes next. Pure: no torch, no clock, no I/O."""
