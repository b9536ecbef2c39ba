"""Kernels written in Triton, for NVIDIA and AMD GPUs. Importing a module of it imports triton."""
