"""Donors announced by the engines' connectors: who could spare a request computing what is no prefix of anything."""
