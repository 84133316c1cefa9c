"""State that several routers share: snapshots of the index, drains, sessions, limits."""
