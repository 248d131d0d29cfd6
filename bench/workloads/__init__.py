"""Prompts that come with Strata, as text files."""
