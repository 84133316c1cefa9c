"""A simulator of prefix and KV caches under memory pressure. TTFT in here is a model, never a measurement."""
