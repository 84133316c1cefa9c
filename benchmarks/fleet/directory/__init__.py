"""The fleet's directory in a real Valkey: what it finds, what it costs, and that it tells nothing to other tenants."""
