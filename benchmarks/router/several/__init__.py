"""Several routers in front of one fleet, and one that is killed and started again."""
