"""semgate: a proxy that records without leaking, and a router that knows where the KV is."""
