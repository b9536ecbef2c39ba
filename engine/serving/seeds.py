"""Seeds made from a seed. Pure."""

import hashlib


def mixed_seed(seed: int, number: int) -> int:
    """A seed of 64 bits that depends on both; neighbouring numbers give unrelated ones."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest(), "big")
