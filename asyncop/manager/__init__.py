"""The manager: one operator's life, its probes and its exit code."""

from asyncop.manager.manager import Manager, ManagerOptions

__all__ = ["Manager", "ManagerOptions"]
