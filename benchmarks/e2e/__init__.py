"""One command from real texts to a judged report on a real engine, and two runs that the gates must reject."""
