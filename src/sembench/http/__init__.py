"""Requests of a live run to timed, decoded replies; Prometheus scrapes to differences."""
