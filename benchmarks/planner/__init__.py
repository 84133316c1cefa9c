"""How fast and how small the planner is, compared with alternatives a user could install today."""
