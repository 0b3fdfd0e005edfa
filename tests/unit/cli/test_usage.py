"""Wrong flags: exit code 2 and one line that says what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncop.operators import BUILTINS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command

BUILTIN = ("-b", "stuckPods")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["walk"], "No such command 'walk'"),
        (["run", "-A", *BUILTIN, "--nmae", "x"], "Did you mean '--name'?"),
        (["run", *BUILTIN], "say where: -n NAMESPACE (repeatable), or -A for the whole cluster"),
        (["run", *BUILTIN, "-A", "-n", "web"], "give -n NAMESPACE or -A, not both"),
        (["run", *BUILTIN, "-n", "team-*"], "-n team-*: patterns are not in this version"),
        (["run", *BUILTIN, "-n", "Team_A"], "-n Team_A: not a namespace's name"),
        (["run", "-A"], "nothing to run: give a FILE, -m MODULE or -b NAME"),
        (["run", "-A", "-b", "stuckPod"], "-b stuckPod: no such controller; did you mean stuckPods?"),
        (["run", "-A", "-b", "xyz"], "-b xyz: no such controller; there are: stuckPods"),
        (["run", "-A", "-b", "etcdClusters"], "-b etcdClusters: reserved for a later version"),
        (["run", "-A", "-b", "companionPods"], "-b companionPods: not in this version"),
        (["run", "-A", "-b", "deploymentPods"], "-b deploymentPods: not in this version"),
        (["run", "-A", "-b", "helmReleases"], "-b helmReleases: not in this version"),
        (["run", "-A", *BUILTIN, "--leader-election-retry-period", "soon"], "'soon' is not a duration"),
        (
            ["run", "-A", *BUILTIN, "--leader-elect", "--leader-election-lease-duration", "5s"],
            "the lease duration must be longer than the renew deadline",
        ),
        (["run", "-A", *BUILTIN, "-v", "-q"], "give -v or -q, not both"),
        (["run", "-A", *BUILTIN, "--name", "my operator"], "'my operator' can't be the operator's name"),
        (["run", "-A", *BUILTIN, "--log-format", "xml"], "'xml' is not one of 'auto', 'console', 'json'"),
        (["run", "-A", *BUILTIN, "--health-bind-address", "8081"], "--health-bind-address: '8081' is not an address"),
        (["run", "-A", *BUILTIN, "--metrics-bind-address", ":x"], "--metrics-bind-address: ':x' is not an address"),
        (
            ["run", "-A", *BUILTIN, "--health-bind-address", ":9000", "--metrics-bind-address", "127.0.0.1:9000"],
            "need different ports, both have 9000",
        ),
    ],
)
def test_wrong_flags_are_told_in_one_line(command: Command, arguments: list[str], says: str) -> None:
    ended = command(*arguments)

    assert says in ended.line
    assert ended.code == 2


def test_help_names_every_ready_made_controller(command: Command) -> None:
    assert f"A ready-made controller: {', '.join(BUILTINS)}." in " ".join(command("run", "--help").out.split())


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"ASYNCOP_NAMESPACE": "web,team-*"}, "-n team-*: patterns are not in this version"),
        ({"ASYNCOP_NAMESPACE": "web Team"}, "-n Team: not a namespace's name"),
        ({"ASYNCOP_NAMESPACE": "web", "ASYNCOP_ALL_NAMESPACES": "true"}, "give -n NAMESPACE or -A, not both"),
        ({"ASYNCOP_ALL_NAMESPACES": "maybe"}, "'ASYNCOP_ALL_NAMESPACES'"),
        (
            {
                "ASYNCOP_ALL_NAMESPACES": "yes",
                "ASYNCOP_LEADER_ELECT": "true",
                "ASYNCOP_LEADER_ELECTION_RENEW_DEADLINE": "20s",
            },
            "the lease duration must be longer than the renew deadline",
        ),
        ({"ASYNCOP_ALL_NAMESPACES": "yes", "ASYNCOP_BUILTIN": "stuckPods,etcdClusters"}, "-b etcdClusters: reserved"),
    ],
)
def test_wrong_variables_are_told_like_wrong_flags(command: Command, env: dict[str, str], says: str) -> None:
    ended = command("run", *(() if "ASYNCOP_BUILTIN" in env else BUILTIN), env=env)

    assert says in ended.line
    assert ended.code == 2


def test_a_flag_wins_over_the_variable_that_excludes_it(command: Command) -> None:
    everywhere = {"ASYNCOP_ALL_NAMESPACES": "true"}

    ended = command("run", *BUILTIN, "-q", "-n", "team-*", env=everywhere)

    assert "-n team-*" in ended.line


def test_everything_may_come_from_the_environment(command: Command, tmp_path: Path) -> None:
    env = {
        "ASYNCOP_BUILTIN": "stuckPods",
        "ASYNCOP_NAMESPACE": "web, db",
        "ASYNCOP_SET": "controllers.stuckPods.taintAge=3s\ncontrollers.stuckPods.taints={a, b}",
        "ASYNCOP_KUBECONFIG": str(tmp_path / "nowhere"),
        "ASYNCOP_HEALTH_BIND_ADDRESS": "0",
        "ASYNCOP_METRICS_BIND_ADDRESS": "0",
        "ASYNCOP_LOG_FORMAT": "json",
    }

    ended = command("run", env=env)

    assert '"namespaces":["web","db"]' in ended.err
    assert f"asyncop: kubeconfig {tmp_path / 'nowhere'} does not exist" in ended.err
    assert ended.code == 3


def test_no_command_shows_the_help(command: Command) -> None:
    ended = command()

    assert "Usage: asyncop" in ended.err
    assert ended.code == 2


def test_help_lists_what_there_is(command: Command) -> None:
    ended = command("--help")

    assert "run " in ended.out
    assert "version " in ended.out
    assert ended.code == 0


def test_version_names_what_it_stands_on(command: Command) -> None:
    ended = command("version")

    assert ended.out.startswith("asyncop 0.")
    for part in ("Python 3.", "kubernetes_asyncio ", "aiohttp ", "uvloop ", "msgspec "):
        assert part in ended.out
    assert ended.code == 0
