"""Salvage of damaged pages and column chunks, for the reader and for recoveries. Sans-io."""
