"""KV events of the engines in (ZeroMQ, msgpack), an up-to-date block index out; gaps, restarts and clears handled."""
