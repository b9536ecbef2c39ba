"""NVIDIA chips with 99 KB of shared memory a block (sm_86, sm_89, sm_120). First guesses, nothing timed."""

from .attention import AttentionConfig, Table

ATTENTION: Table = {
    ("decode", 64): AttentionConfig(block_m=16, block_n=64, num_warps=4, num_stages=5),
    ("decode", 128): AttentionConfig(block_m=16, block_n=32, num_warps=4, num_stages=5),
    ("decode", 256): AttentionConfig(block_m=16, block_n=32, num_warps=4, num_stages=5),
    ("prefill", 64): AttentionConfig(block_m=128, block_n=64, num_warps=8, num_stages=5),
    ("prefill", 128): AttentionConfig(block_m=128, block_n=32, num_warps=8, num_stages=5),
    ("prefill", 256): AttentionConfig(block_m=64, block_n=32, num_warps=8, num_stages=3),
}
