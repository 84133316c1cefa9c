"""Load on a live server: schedules, prompts, records, and the figures computed from them."""
