"""Anchors and vectors in, donor candidates out; anchors also come back as verified equal runs."""
