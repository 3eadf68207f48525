"""Which of the located row groups are whole, and what is left of the others."""
