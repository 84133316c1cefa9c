"""Thousands of streams through the router, beside other routers."""
