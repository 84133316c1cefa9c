"""Servers that the engine flows share with the conformance suite end with the session."""

from tests.conformance.conftest import pytest_sessionfinish

__all__ = ["pytest_sessionfinish"]
