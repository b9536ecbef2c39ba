"""What fairstep imports of it."""

from dataclasses import asdict, replace

__all__ = ["asdict", "replace"]
