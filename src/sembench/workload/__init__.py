"""Workloads: source records are read, transformed into donor/recipient pairs or streams, and written as a manifest."""
