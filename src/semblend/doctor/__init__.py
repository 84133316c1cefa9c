"""Checks an installation before a server starts, and collects evidence on a GPU."""
