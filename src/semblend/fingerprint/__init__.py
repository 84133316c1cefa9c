"""Tokens and texts become what can be searched: anchors that guarantee, and window embeddings that suggest."""
