"""Experiment: do GPU kernels agree with plain CPU loops, bit for bit, in one order of sums?"""
