"""Pages and column chunks: their bytes, decoded and encoded. Sans-io."""
