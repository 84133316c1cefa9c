"""The server side of proxy and router: listening, request bodies, tenants, error replies, headers that may pass."""
