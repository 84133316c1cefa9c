"""Measured blends in; out: the laws by which the gate predicts KL."""
