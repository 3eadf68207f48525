"""`rpq protect`, `rpq repair` and `rpq scrub`: files that are kept as they were."""
