"""Start, find and end the test bed's processes without ever hitting somebody else's.

A process is identified by its pid *and* its start time, because pids are reused: a record left by a killed run may
name a pid that belongs to a stranger today. Besides, every process carries the state directory it belongs to in its
environment, which its children inherit. That mark finds also what was started in the instant before its owner was
killed and so never made it into a record.

Left to the callers: what to start and when it counts as ready. Signals go to whole process groups; each process
leads its own, so a Ctrl-C at the terminal does not reach it and cleaning up stays in one place.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testbed.errors import MissingToolError, TestbedError

MARK = "ASYNCOP_TESTBED_OWNED_BY"
"""Environment variable that names the state directory a process belongs to."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Identity:
    """One process for as long as it lives; never equal to a later process with the same pid."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/PID/stat."""

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """Return None if there is no such process, or only the zombie of one."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @property
    def is_alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None:
            child.poll()
        return Identity.of(self.pid) == self

    def kill_group(self, signum: signal.Signals) -> None:
        """Signal the process and its group; nothing happens if it is gone already."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The handle pins the process: if it is ours now, the group of that number is ours as well.
            if Identity.of(self.pid) != self:
                return
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signum)
            else:
                signal.pidfd_send_signal(handle, signum)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def wait_until(condition: Callable[[], bool], timeout: float, interval: float = 0.05) -> bool:
    """Poll; tell whether the condition came true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


class Process:
    """A background process with a record (`run/NAME.json`) and a log (`log/NAME.log`) in a directory."""

    def __init__(self, state_dir: Path, name: str, subdirectory: str = ".") -> None:
        self.name = name
        self._state_dir = state_dir
        home = state_dir / subdirectory
        self._record = home / "run" / f"{name}.json"
        self.log = home / "log" / f"{name}.log"

    def start(self, *argv: str | Path) -> Identity:
        """Start it in the background; a former log is continued."""
        self._record.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                [str(arg) for arg in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**tool_environment(), MARK: str(self._state_dir)},
            )
        _children[child.pid] = child
        identity = Identity.of(child.pid)
        if identity is None:
            raise TestbedError(f"{self.name} ended at once:\n{self.log_tail()}")
        write_atomically(self._record, json.dumps(asdict(identity)))
        return identity

    @property
    def identity(self) -> Identity | None:
        """As recorded, whether it lives or not; None if it was never started."""
        try:
            return Identity(**json.loads(self._record.read_text()))
        except FileNotFoundError:
            return None

    @property
    def is_running(self) -> bool:
        identity = self.identity
        return identity is not None and identity.is_alive

    def stop(self, grace: float = 10) -> None:
        """Ask it to end, and kill it after the grace (seconds; 0 kills at once). Safe to repeat."""
        identity = self.identity
        if identity is not None:
            if grace:
                identity.kill_group(signal.SIGTERM)
                wait_until(lambda: not identity.is_alive, grace)
            end([identity])
        self._record.unlink(missing_ok=True)

    def log_tail(self, lines: int = 12) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""


def tool_environment() -> dict[str, str]:
    """Ours without proxies, which would stand between the parts, and with the places where Debian keeps iptables."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "PATH": f"{kept.get('PATH', '')}:{_SYSTEM_PATH}"}


def run_tool(argv: Sequence[str | Path], *, stdin: str | None = None, timeout: float = 60, **variables: str) -> str:
    """Run a command to its end and return its output.

    Raises:
        MissingToolError: it isn't installed.
        TestbedError: it failed or took too long; what it said is in the message.
    """
    words = [str(word) for word in argv]
    environment = {**tool_environment(), **variables}
    try:
        done = subprocess.run(
            words, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise MissingToolError(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise TestbedError(f"`{' '.join(words)}` did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise TestbedError(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def end(identities: Sequence[Identity], timeout: float = 20) -> None:
    """Kill them all and wait until they are gone.

    Raises:
        TestbedError: some outlived SIGKILL for the whole timeout, so they hang in the kernel.
    """
    for identity in identities:
        identity.kill_group(signal.SIGKILL)
    if not wait_until(lambda: not any(identity.is_alive for identity in identities), timeout):
        left = [identity.pid for identity in identities if identity.is_alive]
        raise TestbedError(f"processes {left} could not be killed")


def marked(state_dir: Path) -> Iterator[Identity]:
    """Yield every living process that carries the mark of this state directory."""
    mark = f"{MARK}={state_dir}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        identity = Identity.of(int(entry.name))
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if identity is not None and mark in variables:
            yield identity


def end_marked(state_dir: Path) -> None:
    """Kill whatever carries the mark, until nothing does: a process may have been starting another meanwhile."""
    while found := list(marked(state_dir)):
        end(found)


def write_atomically(path: Path, text: str) -> None:
    """Leave either the old content or the new, also if we are killed now."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(text)
    scratch.replace(path)
