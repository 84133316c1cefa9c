"""The HTTP client of all packages: a request goes to an origin, the reply comes back chunk by chunk."""
