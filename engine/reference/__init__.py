"""The operators of `engine/ops.py` on a CPU: the order of every float sum as explicit loops.

numba compiles the loops as they stand (no contraction, no reordering), so they are at once the
definition that a GPU kernel must match bit for bit and what runs on a machine without a GPU.
"""
