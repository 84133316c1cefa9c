"""Traces: columns every part of the simulator reads, and the loaders that make them."""
