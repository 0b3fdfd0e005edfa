"""The manager: one operator's life, its probes and its exit code."""

from asyncop.manager.leader import LeaderElectionOptions
from asyncop.manager.manager import Manager
from asyncop.manager.options import ManagerOptions

__all__ = ["LeaderElectionOptions", "Manager", "ManagerOptions"]
