"""Filters of a read, and the indexes that narrow it."""
