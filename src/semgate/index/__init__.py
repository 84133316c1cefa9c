"""KV events or routing history in, leading blocks held per replica out; the placement asks it once per request."""
