"""The operators of `engine/reference` as Triton kernels, bit for bit."""
