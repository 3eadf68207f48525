"""What `rpq` prints, and the streams that it prints to."""
