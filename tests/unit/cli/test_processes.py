"""`asyncop` as a user starts it: real processes, signals and sockets."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT = 60.0  # seconds for what takes one on a free machine

OPERATOR = """
import asyncop

@asyncop.reconciler("pods")
async def web(pod, ctx):
    return None
"""

LEFTOVERS = """
import asyncio, threading, time
import asyncop

class Thing(asyncop.Object, api_version="example.com/v1", kind="Thing", plural="things", namespaced=True):
    pass

async def never_ends():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

@asyncop.task(leader=False)
async def leave_something():
    LEAVE
    print("left", flush=True)
    await kept

@asyncop.reconciler(Thing)
async def web(thing, ctx):
    return None
"""

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "http://127.0.0.1:PORT"}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {}}]
current-context: here
"""

Start = "Callable[..., subprocess.Popen[str]]"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `python -m asyncop ARGUMENTS` in the test's folder; it is gone when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "asyncop", *arguments],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A kubeconfig whose server refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.replace("PORT", str(port)))
    return str(path)


def log_lines(process: subprocess.Popen[str], until: str) -> list[dict[str, Any]]:
    """The log up to the line whose message starts with `until`."""
    assert process.stderr is not None
    lines: list[dict[str, Any]] = []
    for text in process.stderr:
        lines.append(json.loads(text))
        if lines[-1]["msg"].startswith(until):
            return lines
    raise AssertionError(f"it ended without saying {until!r}: {lines}")


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def imported_by(*arguments: str) -> set[str]:
    """The modules that `python -m asyncop ARGUMENTS` imports."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "asyncop", *arguments], capture_output=True, text=True, timeout=LIMIT
    )
    assert ended.returncode == 0, ended.stderr
    return set(re.findall(r"\|\s+(\S+)$", ended.stderr, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]])
def test_what_runs_nothing_imports_nothing_heavy(arguments: list[str]) -> None:
    imported = imported_by(*arguments)

    assert "click" in imported
    heavy = {"aiohttp", "asyncio", "kubernetes_asyncio", "msgspec", "prometheus_client", "structlog", "uvloop", "yaml"}
    assert not heavy & imported


@pytest.mark.slow
def test_a_process_ends_cleanly_on_sigterm_while_it_still_loads(start: Any, tmp_path: Path) -> None:
    (tmp_path / "op.py").write_text("import time\nopen('loading', 'w').close()\ntime.sleep(600)\n")
    process = start("run", "-A", "op.py")
    wait_for((tmp_path / "loading").exists)

    process.send_signal(signal.SIGTERM)

    assert process.wait(LIMIT) == 0
    assert process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_answers_probes_and_ends_with_0(
    start: Any, tmp_path: Path, nowhere: str, number: signal.Signals
) -> None:
    (tmp_path / "op.py").write_text(OPERATOR)
    process = start(
        "run", "-A", "op.py", "--kubeconfig", nowhere, "--log-format", "json",
        "--health-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
    )  # fmt: skip
    lines = log_lines(process, until="Waiting for the API server")
    said = {line["msg"]: line for line in lines}
    health, metrics = said["Serving health probes"]["address"], said["Serving metrics"]["address"]

    assert said["Starting"]["operator"] == "op"
    assert any("leader election" in message for message in said)
    assert get(f"http://{health}/livez") == (200, "ok\n")
    assert get(f"http://{health}/readyz")[0] == 503
    assert get(f"http://{health}/startupz")[0] == 503
    assert "asyncop_build_info" in get(f"http://{metrics}/metrics")[1]

    process.send_signal(number)
    assert process.wait(LIMIT) == 0


@pytest.mark.slow
def test_a_port_in_use_is_one_clear_line(start: Any, tmp_path: Path, nowhere: str) -> None:
    (tmp_path / "op.py").write_text(OPERATOR)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("run", "-A", "-q", "op.py", "--kubeconfig", nowhere, "--metrics-bind-address",
                        f"127.0.0.1:{port}", "--health-bind-address", "0")  # fmt: skip
        _, error = process.communicate(timeout=LIMIT)

    assert error == f"asyncop: can't serve metrics at 127.0.0.1:{port}: port {port} is in use\n"
    assert process.returncode == 3


@pytest.mark.slow
def test_a_wrong_context_is_one_clear_line(start: Any, tmp_path: Path, nowhere: str) -> None:
    process = start("run", "-A", "-q", "-b", "stuckPods", "--kubeconfig", nowhere, "--context", "hree",
                    "--metrics-bind-address", "0", "--health-bind-address", "0")  # fmt: skip
    _, error = process.communicate(timeout=LIMIT)

    assert len(error.splitlines()) == 1
    assert error.startswith("asyncop: ")
    assert "'hree'" in error
    assert "'here'" in error
    assert process.returncode == 3


@pytest.mark.slow
def test_a_pipe_that_closes_early_is_no_traceback(start: Any) -> None:
    process = start("--help")
    process.stdout.close()

    assert "Traceback" not in process.stderr.read()
    process.wait(LIMIT)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        os.sched_yield()
        time.sleep(0.01)


class _Empty(http.server.BaseHTTPRequestHandler):
    """An API server that knows nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[str]:
    """A kubeconfig whose server answers everything with an empty object."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.replace("PORT", str(server.server_port)))
    yield str(path)
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "leave",
    [
        "kept = stray = asyncio.create_task(never_ends()); kept = asyncio.sleep(0)",
        "kept = asyncio.to_thread(time.sleep, 1000)",
        "threading.Thread(target=time.sleep, args=(1000,)).start(); kept = asyncio.sleep(0)",
    ],
    ids=["task", "executor", "thread"],
)
def test_what_user_code_leaves_behind_does_not_keep_the_process(
    start: Any, tmp_path: Path, empty: str, leave: str
) -> None:
    (tmp_path / "op.py").write_text(LEFTOVERS.replace("LEAVE", leave))
    off = ("--health-bind-address", "0", "--metrics-bind-address", "0")
    process = start("run", "-A", *off, "op.py", "--kubeconfig", empty)
    assert process.stdout.readline() == "left\n"

    process.send_signal(signal.SIGTERM)

    assert process.wait(LIMIT) == 0
    assert "Something has not ended, so the process ends without it" in process.stderr.read()


@pytest.mark.slow
def test_a_process_started_without_standard_files_ends_in_order(tmp_path: Path, empty: str) -> None:
    text = LEFTOVERS.replace("LEAVE", "kept = asyncio.sleep(0)").replace(
        'print("left", flush=True)', "open('left', 'w')"
    )
    (tmp_path / "op.py").write_text(text)
    command = f'exec {sys.executable} -m asyncop run -A op.py --kubeconfig "$1" <&- >&- 2>&-'
    off = {"ASYNCOP_HEALTH_BIND_ADDRESS": "127.0.0.1:0", "ASYNCOP_METRICS_BIND_ADDRESS": "127.0.0.1:0"}
    process = subprocess.Popen(["sh", "-c", command, "sh", empty], cwd=tmp_path, env=os.environ | off)
    try:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / "left").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)

        process.send_signal(signal.SIGTERM)

        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_second_signal_ends_a_process_without_any_output_at_once(tmp_path: Path, empty: str) -> None:
    text = LEFTOVERS.replace("LEAVE", "kept = never_ends()").replace('print("left", flush=True)', "open('left', 'w')")
    (tmp_path / "op.py").write_text(text)
    command = f'exec {sys.executable} -m asyncop run -A op.py --kubeconfig "$1" >&- 2>&-'
    off = {"ASYNCOP_HEALTH_BIND_ADDRESS": "0", "ASYNCOP_METRICS_BIND_ADDRESS": "0"}
    process = subprocess.Popen(["sh", "-c", command, "sh", empty], cwd=tmp_path, env=os.environ | off)
    try:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / "left").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)  # the task swallows its cancellation

        process.send_signal(signal.SIGTERM)

        assert process.wait(2.0) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
