"""Donors that outlive and outreach one engine: bytes in a carrier, a directory that only suggests. No tensor here."""
