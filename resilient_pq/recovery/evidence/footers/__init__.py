"""Footers at a damaged end: found, read in part, and compared with the pages that they name."""
