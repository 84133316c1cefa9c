"""The request path: a request inspected, its evidence collected, placed on a replica, forwarded, answered, traced."""
