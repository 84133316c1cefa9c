"""Drivers of the rivals. Each runs in its own process under its own environment; none is ever imported here."""
