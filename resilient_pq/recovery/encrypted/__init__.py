"""Encrypted files that are damaged: what is whole of their ciphertext, and what their keys open of it."""
