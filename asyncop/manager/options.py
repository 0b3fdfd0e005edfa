"""How one operator runs: the command line's flags, for programs that embed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncop.manager.leader import LeaderElectionOptions


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """How one operator runs; the command line's flags."""

    name: str = "asyncop"
    """The operator's identity: its Lease, field managers and the Events' reporter derive from it."""
    namespaces: tuple[str, ...] | None = None
    """None: the whole cluster."""
    kubeconfig: str | None = None
    context: str | None = None
    health_address: str = ""
    """`:8081`; empty: no health server."""
    metrics_address: str = ""
    leader_election: LeaderElectionOptions | None = None
    """None: no election, so only one replica may run."""
    owns_process: bool = False
    """Whether the process is this operator's alone: then full caches leave the garbage collector's sight."""
    start_timeout: float = 120.0
    """Seconds to wait for the API server at start."""
    graceful_timeout: float = 45.0
    """Seconds that running reconciles get at the end."""
