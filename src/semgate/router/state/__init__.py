"""What the router knows between requests: replicas, blocks and donors they hold, decisions made, metrics."""
