"""Experiment: do different kernels agree with a plain CPU loop, bit for bit, in one order of sums?"""
