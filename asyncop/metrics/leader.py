"""Leader election, by controller-runtime's name."""

from __future__ import annotations

from asyncop.metrics.series import Values

_master = Values(
    "gauge",
    "leader_election_master_status",
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
    "'name' is the string used to identify the lease. Please make sure to group by name.",
    ("name",),
)


def set_master(name: str, *, is_leader: bool) -> None:
    """Say whether this process leads."""
    _master.labels(name).set(is_leader)
