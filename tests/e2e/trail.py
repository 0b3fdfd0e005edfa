"""Who wrote what and when, by the API server's audit log, and what that says about the lead.

The server's own times count, not those of the writers. A write counts from the moment its request came in to the moment
its answer went out; where it matters, each bound is taken the way that is harder to meet.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

_WRITES = {"create", "update", "patch", "delete", "deletecollection"}
_CHANGE_NOTHING = {"selfsubjectaccessreviews"}
_POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True)
class Write:
    """One write that was carried out, or may have been."""

    who: str
    """The user, or the Pod whose token it was."""
    resource: str
    received: float
    answered: float
    """Seconds since the epoch."""

    @property
    def is_of_lease(self) -> bool:
        return self.resource == "leases"


class Trail:
    """The writes of some writers from now on, in the order in which they were answered.

    Args:
        log: the audit log.
        writers: users or Pods; may grow.
    """

    def __init__(self, log: Path, writers: set[str]) -> None:
        self._log, self._writers = log, writers
        self._offset = log.stat().st_size
        self._writes: list[Write] = []

    def writes(self) -> list[Write]:
        """All of them so far."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written
                self._offset += len(line)
                self._take(json.loads(line))
        self._writes.sort(key=lambda write: write.answered)
        return self._writes

    def work(self, who: str, since: float = 0.0) -> list[Write]:
        """What one of them wrote from a moment on, apart from Leases."""
        return [one for one in self.writes() if one.who == who and not one.is_of_lease and one.received >= since]

    def renewals(self, who: str) -> list[Write]:
        """What one of them wrote into the Lease: its claims, its renewals, and its giving it up."""
        return [write for write in self.writes() if write.who == who and write.is_of_lease]

    def check(self, lease_duration: float) -> None:
        """Nobody has written anything unless the last claim on the Lease was his own and still counted.

        What was written before the first claim in the trail can't be judged.
        """
        holder, until = "", 0.0
        for write in self.writes():
            if write.is_of_lease:
                holder, until = write.who, write.received + lease_duration
            elif holder:
                assert write.who == holder, f"{write} while {holder} held the lease"
                assert write.answered <= until, f"{write}, {write.answered - until:.3f} s after the lease had ended"

    def _take(self, entry: dict[str, Any]) -> None:
        about, user = entry.get("objectRef", {}), entry["user"]
        resource = about.get("resource", "")
        who = (user.get("extra", {}).get(_POD) or [user["username"]])[0]
        is_done = not 400 <= entry.get("responseStatus", {}).get("code", 0) < 500
        if who in self._writers and entry["verb"] in _WRITES and is_done and resource not in _CHANGE_NOTHING:
            received, answered = (_seconds(entry[f"{key}Timestamp"]) for key in ("requestReceived", "stage"))
            self._writes.append(Write(who, resource, received, answered))


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
