"""Blended answers checked against cold ones in production: sampled, bounded, by a test one may read at any time."""
