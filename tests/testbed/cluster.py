"""A whole test bed: bring it up, take it down, clean up after one whose owner died."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Self

from tests.testbed.api import Api
from tests.testbed.binaries import ensure_binaries
from tests.testbed.control_plane import ControlPlane, Timings
from tests.testbed.errors import InUseError, TestbedError
from tests.testbed.processes import Identity
from tests.testbed.state import State, StateDir


class Cluster:
    """A control plane and its nodes (maybe none), by the state directory they live in."""

    def __init__(self, path: Path) -> None:
        self._dir = StateDir(path)
        self.path = self._dir.path

    @property
    def state(self) -> State:
        """As recorded.

        Raises:
            TestbedError: there is none.
        """
        state = self._dir.read()
        if state is None:
            raise TestbedError(f"there is no test bed at {self.path}")
        return state

    @property
    def bin(self) -> Path:
        """The directory with kubectl, helm and the rest."""
        return Path(self.state.binaries)

    @property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(self.path, self.bin)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; it holds its certificates inside, so it may be copied elsewhere."""
        return self.control_plane.kubeconfig

    @property
    def audit_log(self) -> Path:
        """One JSON line a request (level Metadata, when its answer is out), if it was brought up with `audit`."""
        return self.control_plane.audit_log

    @property
    def api(self) -> Api:
        """A plain client for the administrator; the product isn't tested with itself."""
        return self.control_plane.api

    def up(
        self,
        *,
        nodes: int = 0,
        owner: Identity | None = None,
        audit: bool = False,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> Self:
        """Start everything and return when the API server and every Node are ready.

        What a dead run left in the directory is removed first. On any failure, Ctrl-C included, what was started so
        far is removed before the error goes on.

        Raises:
            InUseError: the directory has a living owner.
            MissingToolError: this machine cannot do it.
            TestbedError: something did not come up.
        """
        binaries = ensure_binaries()
        with self._dir.locked():
            self._dir.check_abandoned()
            self._clear()
            # Until all is up we own it, whoever owns it then: if we are killed now, the next run finds a dead owner.
            state = State(Identity.of(os.getpid()), False, nodes, None, str(binaries))
            self._dir.write(state)
            try:
                self._start(state, audit=audit, timings=timings)
                self._dir.write(replace(self.state, owner=owner, is_complete=True))
            except BaseException:
                self._clear()
                self._dir.delete()
                raise
        return self

    def down(self) -> None:
        """Remove every trace, whoever owns it; nothing happens if there is nothing."""
        if self._dir.read() is None:
            return
        with self._dir.locked():
            self._clear()
            self._dir.delete()

    def _start(self, state: State, *, audit: bool, timings: Timings) -> None:
        self.control_plane.start(controllers=state.nodes > 0, audit=audit, timings=timings)

    def _clear(self) -> None:
        self._dir.clear()

    def kubectl(self, *args: str | Path, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl as the administrator and return what it printed.

        Raises:
            TestbedError: it failed; its own message is inside.
        """
        return self.run("kubectl", *args, stdin=stdin, timeout=timeout)

    def run(self, tool: str, *args: str | Path, stdin: str | None = None, timeout: float = 60) -> str:
        """Run one of the binaries (kubectl, helm) against this cluster; see kubectl()."""
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        argv = [str(self.bin / tool), *map(str, args)]
        done = subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            raise TestbedError(f"{tool} {' '.join(argv[1:])}: {done.stderr.strip()}")
        return done.stdout


def clear_ruins(root: Path) -> None:
    """Take down every test bed below the directory whose owner is dead; leave the others alone."""
    for path in sorted(root.iterdir()):
        if not path.is_dir():
            continue
        directory = StateDir(path)
        try:
            directory.check_abandoned()
            Cluster(path).down()
        except InUseError:
            continue
