"""Largest errors allowed against float64 oracles: the one table of these tests.

Each is a share of the size of what was added up (the sum of absolute terms, or the largest
output), unless its comment says otherwise.
"""

LINEAR = 2e-6
LIMBS = 1.5e-4
"""Of activations and weights as two limbs: 2**-14 of the largest weight of 256, and 1/512 of the
step of 1/127 of the largest activation of 32."""
NORM = 1e-6
ROTARY = 1e-6
ATTENTION = 3e-6
CONVOLUTION = 1e-6
DELTA_RULE = 2e-5
"""Errors travel through the state of all tokens before."""
EXPERTS = 3e-6
HYPER_CONNECTIONS = 5e-6
NGRAM = 5e-6

# In units of the last place of the float32 result, over the whole grid.
EXP_ULP = 1.0
SIGMOID_ULP = 2.5
SILU_ULP = 2.4
SOFTPLUS_ULP = 2.8
