"""Processor time per request of the router and of the picker's doors behind Envoy."""
