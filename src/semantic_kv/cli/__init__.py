"""The command `semantic-kv`."""
