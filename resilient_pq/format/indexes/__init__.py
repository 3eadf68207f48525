"""Statistics, page indexes, bloom filters, and the conditions that they are compared with. Sans-io."""
