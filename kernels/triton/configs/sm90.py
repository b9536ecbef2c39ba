"""NVIDIA H100 and H200: 227 KB of shared memory a block. First guesses, nothing timed."""

from .attention import AttentionConfig, Table

ATTENTION: Table = {
    ("decode", 64): AttentionConfig(block_m=16, block_n=64, num_warps=4, num_stages=7),
    ("decode", 128): AttentionConfig(block_m=16, block_n=32, num_warps=4, num_stages=7),
    ("decode", 256): AttentionConfig(block_m=16, block_n=32, num_warps=4, num_stages=5),
    ("prefill", 64): AttentionConfig(block_m=128, block_n=64, num_warps=8, num_stages=5),
    ("prefill", 128): AttentionConfig(block_m=128, block_n=64, num_warps=8, num_stages=5),
    ("prefill", 256): AttentionConfig(block_m=128, block_n=32, num_warps=8, num_stages=5),
}
