"""Faults that people met with memory: it must follow what is selected, not what the cluster holds."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
from structlog.testing import capture_logs

import asyncop
from asyncop.testing import ApiServer
from tests.cases.embedded import Stored, World, embedded, store, until

if TYPE_CHECKING:
    from collections.abc import Callable

MAPS = "/api/v1/namespaces/default/configmaps"
MIB = 1 << 20
LIMIT = 60.0
"""Seconds for what takes a few on a free machine."""

# What a cluster of many tenants holds: 300 MB of ConfigMaps, of which ours are nothing.
NAMESPACES, FOREIGN, EVENTS, OURS = 300, 3000, 27_000, 50
LARGE = "x" * 100_000

OPERATOR = """
import asyncop

class Ours(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)

class Trimmed(asyncop.Object, api_version="v1", kind="ConfigMap"):
    immutable: bool = False

class Header(asyncop.Object, api_version="v1", kind="ConfigMap"):
    pass

class Warned(asyncop.Object, api_version="v1", kind="Event"):
    reason: str = ""

seen = set()
sources = [asyncop.read(EVERYTHING), asyncop.read(Warned, fields={"type": "Warning"})]

@asyncop.reconciler(Ours, labels={"owner": "us"}, sources=sources)
async def look(obj, ctx):
    assert ctx.store(Ours).get("foreign-0", "ns-0") is None, "only what was selected"
    try:
        ctx.store("secrets")
    except asyncop.ConfigError:
        seen.add(obj.metadata.name)
    if len(seen) == OURS:
        ctx.log.info("All seen", everything=len(ctx.store(EVERYTHING)), warned=len(ctx.store(Warned)))
"""


class Used(NamedTuple):
    """Memory of a process, in bytes."""

    now: int
    peak: int


class Operator:
    """`asyncop run -A` in a process of its own."""

    def __init__(self, folder: Path, server: ApiServer, everything: str) -> None:
        folder.mkdir()
        file = folder / "operator.py"
        file.write_text(OPERATOR.replace("EVERYTHING", everything).replace("OURS", str(OURS)))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        flags = ["-A", "--no-leader-elect", "--health-bind-address", "0", "--metrics-bind-address", "0"]
        command = [sys.executable, "-m", "asyncop", "run", str(file), *flags, "--kubeconfig", str(kubeconfig)]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "--log-format", "json", "-v"], stdout=log, stderr=log)

    def said(self, message: str) -> list[dict[str, Any]]:
        """Its log lines of this message."""
        *lines, _ = self._log.read_text(errors="replace").split("\n")
        return [line for line in map(json.loads, lines) if line["msg"] == message]

    def wait(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def used(self) -> Used:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return Used(psutil.Process(self._process.pid).memory_info().rss, int(peak.split()[1]) * 1024)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)


def fill(server: ApiServer) -> None:
    bodies = [Stored("namespaces", "", f"ns-{number}") for number in range(NAMESPACES)]
    for number in range(FOREIGN):
        data = {"data": {"text": LARGE}}
        bodies.append(Stored("configmaps", f"ns-{number % NAMESPACES}", f"foreign-{number}", data))
    for number in range(EVENTS):
        namespace = f"ns-{number % NAMESPACES}"
        about = {"kind": "Pod", "name": "p", "namespace": namespace}
        body = {"involvedObject": about, "reason": "R", "message": "m" * 300, "type": "Normal"}
        bodies.append(Stored("events", namespace, f"event-{number}", body))
    for number in range(OURS):
        ours = {"data": {"text": "small"}}
        bodies.append(Stored("configmaps", f"ns-{number}", f"ours-{number}", ours, {"owner": "us"}))
    store(server, bodies)


def lists_and_watches(server: ApiServer, folder: Path, everything: str) -> Used:
    """What an operator needs that reads ConfigMaps as `everything` says, after it has listed all of it twice."""
    operator = Operator(folder / everything, server, everything)
    try:
        operator.wait(lambda: operator.said("All seen") and server.open_watches == 3)
        assert operator.said("All seen")[-1]["everything"] == FOREIGN + OURS
        assert operator.said("All seen")[-1]["warned"] == 0
        server.faults.fail_watches(status=410)
        operator.wait(lambda: len(operator.said("Recovered list and watch")) == 3 and server.open_watches == 3)
        return operator.used()
    finally:
        assert operator.stop() == 0


def starts(folder: Path) -> Used:
    """What an operator needs before it has read anything."""
    with ApiServer() as server:
        operator = Operator(folder / "empty", server, "Header")
        operator.wait(lambda: operator.said("Started workers"))
        used = operator.used()
        assert operator.stop() == 0
        return used


@pytest.mark.timeout(120)
def test_bl_06_memory_follows_the_selected_objects_and_its_peak_the_size_of_a_page(tmp_path: Path) -> None:
    empty = starts(tmp_path)
    with ApiServer() as server:
        fill(server)
        header = lists_and_watches(server, tmp_path, "Header")
        trimmed = lists_and_watches(server, tmp_path, "Trimmed")
        assert server.resource_version > FOREIGN + EVENTS
    total = FOREIGN * len(LARGE)
    assert header.peak - empty.peak < 25 * MIB < total / 10, "metadata only: nothing large ever comes"
    assert trimmed.now - empty.now < 60 * MIB, "of whole objects only the declared fields stay"
    assert trimmed.peak - empty.peak < 80 * MIB, "no page is much larger than the others"
    assert trimmed.peak < 512 * MIB


# -- BL-23


class Secret(asyncop.Object, api_version="v1", kind="Secret"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Lines:
    """Watch lines about one Secret that the server sends but need not keep."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.version = world.server.resource_version

    def line(self, kind: str, name: str, text: str, annotation: str = "") -> bytes:
        """`text` is JSON's own spelling of the value."""
        self.version += 1
        metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(self.version)}
        if annotation:
            metadata["annotations"] = {"large": annotation}  # type: ignore[assignment]
        obj = json.dumps({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": {"text": "TEXT"}})
        return f'{{"type":"{kind}","object":{obj.replace("TEXT", text)}}}\n'.encode()

    def send(self, data: bytes) -> None:
        for stream in self._world.server._streams.open:
            if stream.watcher.kind.plural == "secrets":
                stream.watcher.lines.append(data)
                stream.watcher.wake.set()


SIZES = {"150 KB": "x" * 150_000, "1.4 MiB": "x" * 1_468_006, "escaped": "\\u0001" * 700_000}
"""The last is 0.7 MB of text and a line of 4.2 MB."""


def allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class Large:
    """A reconciler of Secrets, and how long the text in each of them is."""

    def __init__(self, kind: Any) -> None:
        self.lengths: dict[str, int] = {}
        self.gone: set[str] = set()

        @asyncop.reconciler(kind, name="large")
        async def look(obj: Any, ctx: asyncop.Context) -> None:
            data = obj.data if isinstance(obj, Secret) else obj["data"]
            self.lengths[obj.metadata.name] = len(data["text"])

        @look.gone
        async def forget(last: Any, ctx: asyncop.Context) -> None:
            self.gone.add(last.metadata.name)

        self.reconciler = look


READERS = pytest.mark.parametrize("kind", [Secret, "secrets"], ids=["typed", "untyped"])


@pytest.mark.asyncio
@READERS
async def test_bl_23_lines_of_any_length_are_handled_and_delay_no_other_watch(tmp_path: Path, kind: Any) -> None:
    large = Large(kind)
    maps: list[str] = []

    @asyncop.reconciler(ConfigMap, name="small")
    async def small(obj: ConfigMap, ctx: asyncop.Context) -> None:
        maps.append(obj.metadata.name)

    with capture_logs() as logs:
        async with embedded(tmp_path) as world, world.operating("default", large.reconciler, small):
            await until(lambda: world.server.open_watches == 2, "it watches")
            lines = Lines(world)
            for number, (name, text) in enumerate(SIZES.items()):
                line = lines.line("ADDED", name, text)
                lines.send(line[: len(line) // 2])
                await world.create(MAPS, f"map-{number}")
                await until(lambda number=number: f"map-{number}" in maps, "in mid-line others go on")
                assert name not in large.lengths
                lines.send(line[len(line) // 2 :])
                await until(lambda name=name: name in large.lengths, "the large object is handled")
            assert large.lengths == {name: len(json.loads(f'"{text}"')) for name, text in SIZES.items()}
            assert world.count("list", "secrets") == 1, "no line ended the watch"
    assert [line["event"] for line in logs if line["log_level"] in ("warning", "error")] == []


@pytest.mark.asyncio
@pytest.mark.timeout(60)
@READERS
async def test_bl_23_large_lines_leave_nothing_behind(tmp_path: Path, kind: Any) -> None:
    large = Large(kind)
    async with embedded(tmp_path) as world, world.operating("default", large.reconciler):
        await until(lambda: world.server.open_watches == 1, "it watches")
        lines = Lines(world)

        async def come_and_go(times: int) -> None:
            for number in range(times):
                annotation = f"{number:010}" * 20_000
                for name, text in SIZES.items():
                    lines.send(lines.line("MODIFIED", name, text, annotation))
                    await asyncio.sleep(0.02)
            for name in SIZES:
                lines.send(lines.line("DELETED", name, "x"))
            await until(lambda: large.gone == set(SIZES), "all are gone")
            large.gone.clear()

        tracemalloc.start()
        try:
            await come_and_go(1)
            before = allocated()
            await come_and_go(12)
            assert allocated() - before < 1 * MIB, "memory is back to normal"
        finally:
            tracemalloc.stop()
