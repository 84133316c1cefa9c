"""One streaming client for live servers: requests in, timed replies out; and Prometheus scrapes as differences."""
