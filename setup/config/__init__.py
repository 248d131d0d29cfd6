"""The config file `strata-<model>.json`: its keys, its faults, merging and writing."""
