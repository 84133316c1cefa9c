"""What the guard is worth, on distributions recorded from the real engine."""
