"""The state directory: who owns a test bed, and what must go when its owner is dead.

`state.json` is there before the first process is. It names the owner: a running process (a test run), or nobody, for
a bed that the command line started and that lives until `down`. From it follows what a new run may do with what it
finds: a dead owner's remains are its to remove, a living owner's bed is refused.

A file lock serialises commands on one directory; it dies with its holder, so nobody can leave it behind.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testbed.errors import InUseError, TestbedError
from tests.testbed.processes import Identity, end_marked, marked, write_atomically

_LOCK = "lock"
_MAX_PATH = 70
"""A Unix socket's path has room for 107 bytes, and the nodes' sockets lie a few folders deeper than this."""


@dataclass(frozen=True)
class State:
    """What a later run must know."""

    owner: Identity | None
    """The process that the bed dies with; None: it is kept until `down`."""
    is_complete: bool
    """False until everything is up; a bed that never got there without a living owner is a ruin."""
    nodes: int
    binaries: str


class StateDir:
    """One test bed's directory. The path is resolved, so that it is the same mark whoever names it and how."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def _file(self) -> Path:
        return self.path / "state.json"

    def read(self) -> State | None:
        """None if there is no test bed."""
        try:
            fields = json.loads(self._file.read_text())
        except FileNotFoundError:
            return None
        # By name, so that what another version of this code recorded besides doesn't stand in the way of cleaning up.
        owner = fields["owner"]
        return State(
            owner=Identity(**owner) if owner else None,
            is_complete=fields["is_complete"],
            nodes=fields["nodes"],
            binaries=fields["binaries"],
        )

    def write(self, state: State) -> None:
        write_atomically(self._file, json.dumps(asdict(state), indent=1))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but what a run leaves that was killed before it recorded anything."""
        return not {entry.name for entry in self.path.iterdir()} - {_LOCK, "state.json.new"}

    def check_abandoned(self) -> None:
        """Return if whatever is in there may be removed.

        Raises:
            InUseError: it belongs to a living process, or is kept until `down`.
            TestbedError: it isn't a test bed's directory at all.
        """
        state = self.read()
        if state is None:
            if self.path.exists() and not self.is_empty:
                raise TestbedError(f"{self.path} is not empty and is no test bed; choose another directory")
        elif state.owner is not None:
            if state.owner.is_alive:
                raise InUseError(f"{self.path} is in use by process {state.owner.pid}, which is still running")
        elif state.is_complete and any(marked(self.path)):
            raise InUseError(f"{self.path} is up already; take it down first")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory against other commands, making it if need be.

        Raises:
            InUseError: another command holds it.
        """
        if len(os.fsencode(self.path)) > _MAX_PATH:
            raise TestbedError(f"{self.path} is too long for the sockets in it; {_MAX_PATH} bytes are the limit")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self.path / _LOCK
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(f"another command is at work on {self.path}") from None
            if not lock.exists() or not os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                raise InUseError(f"{self.path} was taken down just now")
            yield

    def clear(self) -> None:
        """Kill every process with our mark, detach what is mounted inside, empty the directory. Safe to repeat.

        The record goes last, so that an interrupted clearing is seen as one.
        """
        end_marked(self.path)
        _unmount_below(self.path)
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name not in {_LOCK, self._file.name}:
                entry.unlink()
        self._file.unlink(missing_ok=True)

    def delete(self) -> None:
        """Remove the cleared directory itself; the caller holds the lock."""
        (self.path / _LOCK).unlink()
        self.path.rmdir()


def _unmount_below(path: Path) -> None:
    """Nodes mount in a namespace of their own, so there should be nothing; but never delete through a mount."""
    prefix = f"{path}/"
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed(targets):
        if target.startswith(prefix):
            os.spawnlp(os.P_WAIT, "umount", "umount", "-l", target)


def default_root() -> Path:
    """Where test runs put their state directories, for this user alone."""
    root = Path(tempfile.gettempdir()) / f"asyncop-testbed-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise TestbedError(f"{root} belongs to somebody else")
    return root
