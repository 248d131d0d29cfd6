"""Setup's rules: pure functions from facts to a choice and the sentence that says why.

Units as in the published examples, which they reproduce: memory of cards and machine in GiB, models
and caches in decimal GB. The two are compared as they stand, on purpose.
"""
