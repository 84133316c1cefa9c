"""HTTP for proxy and router: one server, one streaming client, and what may pass between them."""
