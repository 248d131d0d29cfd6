"""Everything between a GGUF file and a token.

Axis letters in shapes: R rows, T tokens, D model width, H heads, K key dim (or the inner dim of a
matrix product), N outputs of a matrix product, V value dim, E experts, A experts a token, S slots,
G groups of 32 along K, C hyper-connection streams.
"""
