"""S3 and everything that speaks its protocol."""
