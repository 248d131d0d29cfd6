"""The questions of setup as data, and the interview that asks them."""
