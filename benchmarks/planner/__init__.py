"""How fast and how small the planner is, beside the rivals a user could install today."""
