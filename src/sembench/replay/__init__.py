"""Replaying a manifest: what earlier traffic holds, what the planner proposes, one row of evidence per request."""
