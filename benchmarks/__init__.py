"""Our hot paths, measured side by side with what a user would pick instead. Not part of the distribution."""
