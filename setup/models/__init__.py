"""Models by name and on the disk: the catalogue, what a file is, downloads."""
