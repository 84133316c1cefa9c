"""Tokens and texts in; out: anchors, which guarantee a match is found, and window embeddings, which suggest donors."""
