"""Live replay: a manifest and a running server in, rows of cold and warm requests out, joined with engine events."""
