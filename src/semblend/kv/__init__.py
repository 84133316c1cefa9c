"""KV tensors without an engine: rotate keys, read packed blocks back, keep donors in host memory."""
