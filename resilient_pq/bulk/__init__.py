"""Many files, whatever they hold: found, and each checked or recovered by itself."""
