"""Two real vLLM servers behind the router: six policies over one load."""
