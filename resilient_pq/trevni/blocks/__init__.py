"""The Trevni format, sans-io: bytes to values."""
