"""`asyncop run` as a process outside of the cluster: started, looked at by its log and its two ports, and ended."""

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.lost_node import log_entries
from tests.testbed.processes import tool_environment

ROOT = Path(__file__).resolve().parents[2]
ENDED = 5.0
"""Seconds that a clean stop may take if nothing runs but what posts Events and closes connections."""


class Outside:
    """The process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def log(self) -> list[dict[str, Any]]:
        return log_entries(self._log.read_text())

    def told(self, message: str) -> int:
        """How often it has logged that."""
        return sum(entry["msg"] == message for entry in self.log())

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        assert self.is_running, self._log.read_text()
        return self._get("health probes", "/readyz") == "ok\n"

    def metrics(self) -> str:
        return self._get("metrics", "/metrics")

    def _get(self, purpose: str, path: str) -> str:
        """Empty while it doesn't listen, or says anything but 200."""
        served = [entry["address"] for entry in self.log() if entry["msg"] == f"Serving {purpose}"]
        if not served:
            return ""
        try:
            with urllib.request.urlopen(f"http://{served[0]}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            error.close()
            return ""

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns its exit code."""
        return self._process.wait(timeout=timeout)

    def terminate(self) -> int:
        """Ask it to end; returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout=5 * ENDED)


@contextmanager
def running_outside(kubeconfig: Path, log: Path, *arguments: str, **variables: str) -> Iterator[Outside]:
    """Start it with more arguments and environment variables; kill it in the end if it is still there."""
    argv = [
        *(sys.executable, "-m", "asyncop", "run", *arguments),
        *("--kubeconfig", str(kubeconfig), "--log-format", "json"),
        *("--health-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"),
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=ROOT, env={**tool_environment(), **variables}, stderr=stderr)
    try:
        yield Outside(process, log)
    finally:
        process.kill()  # also one that was stopped
        process.wait()
