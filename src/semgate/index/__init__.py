"""KV events or routing history in, leading blocks held per replica out; queried by the placement once per request."""
