"""Load on a live server: when requests are sent, what is sent, what came back, and what that says."""
