"""The parts of a block, written once for every device: they call `Ops` and hold no arithmetic."""
