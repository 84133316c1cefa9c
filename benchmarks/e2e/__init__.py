"""One command from real texts to a judged report on a real engine, and the two runs that must not pass."""
