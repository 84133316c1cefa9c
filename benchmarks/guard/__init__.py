"""What the guard and the predicted KL are worth, on distributions recorded from the real engine."""
