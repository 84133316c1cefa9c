"""The router's placement for data planes of others: Envoy and what is built on it (ext_proc)."""
