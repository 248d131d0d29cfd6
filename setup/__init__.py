"""Probe the machine, choose what to run, write the config file. Needs no torch."""
