"""Fixtures of the cases: those of the contract tests."""

from tests.contract.simulated_nodes import world

__all__ = ["world"]
