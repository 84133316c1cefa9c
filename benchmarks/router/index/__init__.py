"""The index of announced blocks under load."""
