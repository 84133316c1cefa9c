"""The command ``semblend``: one module per command."""
