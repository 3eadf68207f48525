"""Sidecars with parity: made beside any file (`protect`), and used to rebuild what was lost of it (`repair`)."""
