"""Fixtures of the tests against a real API server."""

from tests.contract.simulated_nodes import world

__all__ = ["world"]
