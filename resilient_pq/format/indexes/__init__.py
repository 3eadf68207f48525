"""What tells which rows can be where: statistics, page indexes, bloom filters, conditions. Sans-io."""
