"""Records of resilient files: where they lie, what they name, and where the parts of the file belong."""
