"""Donors of a fleet on real servers: what a donor of another replica is worth, and what happens when a part dies."""
