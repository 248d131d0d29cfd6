"""Files of a model hub: what it says about them, and one file from it to this disk."""
