"""Blended answers compared with cold ones in production: sampled, bounded, with a test that is valid at any time."""
