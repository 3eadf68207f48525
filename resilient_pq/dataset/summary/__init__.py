"""Summaries of data sets: `_metadata` files, written and understood."""
