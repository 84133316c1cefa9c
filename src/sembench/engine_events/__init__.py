"""What an engine said: log lines or event streams in, a summary or one row per request out. Only said reuse counts."""
