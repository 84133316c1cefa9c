"""The router: one request in, one replica chosen, its answer passed on, and a record of why."""
