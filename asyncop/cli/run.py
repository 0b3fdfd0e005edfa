"""`asyncop run`: its flags. What they lead to is in `asyncop.cli.start`, which `--help` doesn't import."""

from __future__ import annotations

from typing import Any

import click

from asyncop.cli.flags import Lines, Seconds, Several, checked, option

_EPILOG = "Lists in the environment are separated by commas or spaces; ASYNCOP_SET has one PATH=VALUE a line."
_ADDRESS = "HOST:PORT, :PORT, port 0 for any free one, or 0 for off."


@click.command("run", epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@option("-m", "--module", "modules", envvar="MODULE", type=Several(), multiple=True, help="Load a module too.")
@option("-b", "--builtin", "builtins", envvar="BUILTIN", type=Several(), multiple=True,
        help="A ready-made controller: stuckPods.")  # fmt: skip
@option(
    "-n",
    "--namespace",
    "namespaces",
    envvar="NAMESPACE",
    type=Several(),
    multiple=True,
    help="A namespace; repeatable.",
)
@option("-A", "--all-namespaces", "everywhere", envvar="ALL_NAMESPACES", is_flag=True, help="The whole cluster.")
@option("--name", envvar="NAME", help="The operator's identity; by default the first FILE's or module's name.")
@option("--config", envvar="CONFIG", metavar="FILE", help="The controllers' configuration, in YAML.")
@option("--set", "assignments", envvar="SET", type=Lines(), multiple=True, metavar="PATH=VALUE", help="Override it.")
@option(
    "--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="By default $KUBECONFIG, the Pod's or ~/.kube/config."
)
@option("--context", envvar="CONTEXT", help="The kubeconfig's context; by default its current one.")
@option("--leader-elect/--no-leader-elect", envvar="LEADER_ELECT", default=None,
        help="One of several replicas works. By default in a cluster, and not with --dev.")  # fmt: skip
@option("--leader-election-namespace", "election_namespace", envvar="LEADER_ELECTION_NAMESPACE", metavar="NS",
        help="Of the Lease; by default the Pod's, or the context's.")  # fmt: skip
@option("--leader-election-lease-duration", "lease_duration", envvar="LEADER_ELECTION_LEASE_DURATION", type=Seconds(),
        default="15s", show_default=True, help="After so long without renewal another may lead.")  # fmt: skip
@option("--leader-election-renew-deadline", "renew_deadline", envvar="LEADER_ELECTION_RENEW_DEADLINE", type=Seconds(),
        default="10s", show_default=True, help="After so long without renewal the leader stops.")  # fmt: skip
@option("--leader-election-retry-period", "retry_period", envvar="LEADER_ELECTION_RETRY_PERIOD", type=Seconds(),
        default="2s", show_default=True, help="Between two tries to lead or to renew.")  # fmt: skip
@option("--health-bind-address", "health_address", envvar="HEALTH_BIND_ADDRESS", default=":8081", show_default=True,
        metavar="ADDRESS", help=f"Serve probes: {_ADDRESS}")  # fmt: skip
@option("--metrics-bind-address", "metrics_address", envvar="METRICS_BIND_ADDRESS", default=":8080", show_default=True,
        metavar="ADDRESS", help=f"Serve metrics: {_ADDRESS}")  # fmt: skip
@option("--dev", envvar="DEV", is_flag=True, help="For development: console logs, no election.")
@option("-v", "--verbose", envvar="VERBOSE", is_flag=True, help="Debug logs.")
@option("-q", "--quiet", envvar="QUIET", is_flag=True, help="Warnings and errors only.")
@option("--log-format", envvar="LOG_FORMAT", type=click.Choice(["auto", "console", "json"]), default="auto",
        show_default=True, help="auto is console on a terminal, JSON elsewhere.")  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Run reconcilers from FILEs, modules and the ready-made controllers until SIGTERM or SIGINT."""
    flags = checked(ctx, given)
    from asyncop.cli.start import start

    return start(ctx, flags)
