"""The output of `rpq`, and its streams."""
