"""What an exec plugin is told, and one clear line for each way in which it fails."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from asyncop.api.errors import ConfigError
from asyncop.client.config import load_connection
from asyncop.client.exec_plugin import ExecPlugin, Plugin
from tests.unit.client.server import LONG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

V1 = "client.authentication.k8s.io/v1"
CLUSTER = {"server": "https://c.example", "certificate-authority-data": "QUJD", "tls-server-name": "api"}


def script(path: Path, text: str) -> str:
    """A plugin."""
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return str(path)


def printing(status: Any, **changes: Any) -> str:
    """The line of a plugin that prints an ExecCredential."""
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status} | changes
    return f"cat <<'END'\n{json.dumps(credential)}\nEND\n"


def spec(command: str, **more: Any) -> dict[str, Any]:
    return {"command": command, "apiVersion": V1, "interactiveMode": "Never"} | more


async def started(exec_spec: Any, cluster: dict[str, Any] | None = None) -> ExecPlugin:
    plugin = ExecPlugin(Plugin.of(exec_spec, cluster or CLUSTER, "test"))
    await plugin.start()
    return plugin


async def refused(exec_spec: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        await started(exec_spec)
    message = str(caught.value)
    assert message.startswith("test: exec")
    assert "\n" not in message
    return message.removeprefix("test: ")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_arguments_environment_and_the_cluster_reach_it(
    tmp_path: Path, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    command = script(
        tmp_path / "plugin", f'echo "$1 $STAGE $KUBERNETES_EXEC_INFO" > {tmp_path}/seen\n{printing({"token": "t"})}'
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    given = spec(command, args=["get-token"], env=[{"name": "STAGE", "value": "test"}], provideClusterInfo=True)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(started(given, CLUSTER | {"extensions": [extension]}))
    argument, stage, info = (tmp_path / "seen").read_text().split(" ", 2)
    assert (argument, stage) == ("get-token", "test")
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {**CLUSTER, "config": {"audience": "a"}}},
    }


@pytest.mark.asyncio
async def test_a_relative_command_is_beside_the_kubeconfig_and_a_bare_one_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder / "own-plugin", printing({"token": "t"}))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for command in ("./bin/own-plugin", "bin/own-plugin", "own-plugin"):
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": CLUSTER | {"certificate-authority-data": None}}],
            "users": [{"name": "u", "user": {"exec": spec(command)}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        connection = await load_connection(str(tmp_path / "config"))
        assert connection.sign_in is not None
        assert (await connection.sign_in.current()).authorization == "Bearer t"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("rubbish", "exec is not a mapping"),
        ({"apiVersion": V1}, "exec has no command"),
        ({"command": "x"}, f"exec: apiVersion must be {V1} or {V1}beta1"),
        ({"command": "x", "apiVersion": V1, "args": "a"}, "exec: args is not a list"),
        ({"command": "x", "apiVersion": V1, "env": [{"name": "a"}]}, "exec: env is not a list of entries with"),
        ({"command": "x", "apiVersion": V1, "interactiveMode": "Yes"}, "exec: interactiveMode must be Never, If"),
        (
            spec("no-such-plugin", installHint="Get it\n  from the shop"),
            "exec plugin no-such-plugin is not there; Get it from the shop",
        ),
        (spec("/etc/passwd"), "exec plugin /etc/passwd can't be run: Permission denied"),
        (spec("/bin/sh", interactiveMode="Always"), "exec plugin /bin/sh wants to ask on a terminal"),
    ],
)
async def test_each_fault_of_its_description_is_one_line(given: Any, complaint: str) -> None:
    assert (await refused(given)).startswith(complaint)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("echo 'please log' >&2; echo in >&2; exit 3", "failed with exit code 3: please log in; get it"),
        ("kill -9 $$", "failed with exit code -9; get it"),
        ("echo secret", "printed something that is no JSON"),
        ("echo '[]'", "printed no ExecCredential"),
        (printing({}, apiVersion=f"{V1}beta1"), f"speaks {V1}beta1, and the kubeconfig says {V1}"),
        (printing(None), "printed an ExecCredential without a status"),
        (printing({}), "printed neither token nor clientCertificateData"),
        (printing({"clientCertificateData": "secret"}), "printed only one of clientCertificateData and clientKeyData"),
        (printing({"token": "sec\nret"}), "the token, certificate or key that it printed is not a text"),
        (
            printing({"token": "secret", "expirationTimestamp": "soon"}),
            "printed an expirationTimestamp that is no time",
        ),
    ],
)
async def test_each_failure_of_a_run_is_one_line_without_secrets(tmp_path: Path, text: str, complaint: str) -> None:
    message = await refused(spec(script(tmp_path / "plugin", text), installHint="get it"))
    assert complaint in message
    assert "secret" not in message


@pytest.mark.asyncio
async def test_when_cancelled_it_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    command = script(
        tmp_path / "plugin", f"sleep 600 &\necho $! > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nwait\n"
    )
    start = asyncio.create_task(started(spec(command)))
    await until((tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await until(lambda: not is_alive(child))


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
