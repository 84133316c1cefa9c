"""Dynamo, experimental: donor events over NATS and ZeroMQ, and semantic evidence for its router. Claims no reuse."""
