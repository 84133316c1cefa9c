"""Dynamo, experimental: semantic evidence for its router. Claims no reuse."""
