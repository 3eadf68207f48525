"""What is left of damaged pages and column chunks, for the reader and for recoveries alike. Sans-io."""
