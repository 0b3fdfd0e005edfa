"""What `asyncop run` is told by flags and environment, and what of it makes no sense.

Each flag may be given in the environment instead; the command line wins. A mistake here is a usage error (exit code 2)
that says what to write.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from asyncop.api.duration import parse_duration
from asyncop.cli.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncop.cli.logs import LogFormat

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GLOB = re.compile(r"[*?\[\]!]")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # the name part of an annotation or a finalizer


@dataclass(frozen=True, kw_only=True)
class Election:
    """How replicas are to elect their leader; times in seconds."""

    namespace: str
    """Empty: that of the service account, or of the kubeconfig's context."""
    lease_duration: float
    renew_deadline: float
    retry_period: float


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What to run and how."""

    files: tuple[str, ...]
    modules: tuple[str, ...]
    builtins: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    """None: the whole cluster."""
    name: str
    config: str | None
    assignments: tuple[str, ...]
    kubeconfig: str | None
    context: str | None
    health_address: str
    metrics_address: str
    election: Election | None
    """None: no leader election."""
    dev: bool
    log_format: LogFormat
    log_level: int


class Several(click.ParamType[str]):
    """Text that an environment variable gives several times, with commas or spaces between."""

    name = "text"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Split what the environment gives."""
        return [part for part in re.split(r"[,\s]+", rv) if part]


class Lines(click.ParamType[str]):
    """Text that an environment variable gives several times, one a line, since values have commas and spaces."""

    name = "text"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Split what the environment gives."""
        return [line.strip() for line in rv.splitlines() if line.strip()]


class Seconds(click.ParamType[float]):
    """A duration such as 15s, 1m30s or seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the forms there are."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def option(*names: str, envvar: str, **more: Any) -> Callable[[Any], Any]:
    """A flag that may also be given as ASYNCOP_ENVVAR."""
    return click.option(*names, envvar=f"ASYNCOP_{envvar}", show_envvar=True, **more)


def checked(ctx: click.Context, given: Mapping[str, Any]) -> Flags:
    """The flags, as far as they can be checked by themselves.

    Raises:
        click.UsageError: they make no sense; the message says what to write.
    """
    if given["name"]:
        check_name(ctx, given["name"])
    return Flags(
        files=given["files"],
        modules=given["modules"],
        builtins=_builtins(ctx, given["builtins"]),
        namespaces=_namespaces(ctx, given["namespaces"], given["everywhere"]),
        name=given["name"] or _default_name(given["files"], given["modules"]),
        config=given["config"],
        assignments=given["assignments"],
        kubeconfig=given["kubeconfig"],
        context=given["context"],
        health_address=given["health_address"],
        metrics_address=given["metrics_address"],
        election=_election(given),
        dev=given["dev"],
        log_format="console" if given["dev"] and given["log_format"] == "auto" else given["log_format"],
        log_level=_log_level(ctx, given["verbose"], given["quiet"]),
    )


def _election(given: Mapping[str, Any]) -> Election | None:
    """Unless said otherwise: in a cluster, where replicas are usual, and not while developing."""
    wanted = given["leader_elect"]
    if wanted is None:
        is_inside = "KUBERNETES_SERVICE_HOST" in os.environ and not (given["kubeconfig"] or given["context"])
        wanted = is_inside and not given["dev"]
    if not wanted:
        return None
    return Election(
        namespace=given["election_namespace"] or "",
        lease_duration=given["lease_duration"],
        renew_deadline=given["renew_deadline"],
        retry_period=given["retry_period"],
    )


def _log_level(ctx: click.Context, verbose: bool, quiet: bool) -> int:
    if verbose and quiet:
        winner = _overrides(ctx, "verbose", "quiet")
        if winner is None:
            raise click.UsageError("give -v or -q, not both", ctx)
        verbose = winner == "verbose"
    return logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO


def _builtins(ctx: click.Context, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    from asyncop.operators import BUILTINS, RESERVED

    for name in names:
        if name in RESERVED:
            raise click.UsageError(f"-b {name}: {RESERVED[name]}", ctx)
        if name not in BUILTINS:
            hint, there = nearest(name, BUILTINS), f"there are: {', '.join(sorted(BUILTINS))}"
            raise click.UsageError(
                f"-b {name}: no such controller; {there if hint == there else f'{hint} {there}'}", ctx
            )
    return tuple(dict.fromkeys(names))


def _namespaces(ctx: click.Context, names: tuple[str, ...], everywhere: bool) -> tuple[str, ...] | None:
    if names and everywhere:
        winner = _overrides(ctx, "namespaces", "everywhere")
        if winner is None:
            raise click.UsageError("give -n NAMESPACE or -A, not both", ctx)
        everywhere = winner == "everywhere"
    if everywhere:
        return None
    if not names:
        raise click.UsageError("say where: -n NAMESPACE (repeatable), or -A for the whole cluster", ctx)
    for name in names:
        if _GLOB.search(name):
            raise click.UsageError(f"-n {name}: patterns are not in this version; name each namespace, or use -A", ctx)
        if not _NAMESPACE.fullmatch(name):
            raise click.UsageError(f"-n {name}: not a namespace's name (lower-case letters, digits and '-')", ctx)
    return tuple(dict.fromkeys(names))


def check_name(ctx: click.Context, name: str) -> None:
    """Raise UsageError unless finalizers, annotations and field managers can be named so.

    For a name that was derived from a FILE this comes after the FILE has been found: that is the first thing to say.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} can't be the operator's name (letters, digits, '-', '_' and '.', at most 63); give --name", ctx
        )


def _default_name(files: tuple[str, ...], modules: tuple[str, ...]) -> str:
    if files:
        return Path(files[0]).stem
    return modules[0].rpartition(".")[2] if modules else "asyncop"


def _overrides(ctx: click.Context, first: str, second: str) -> str | None:
    """Which of two flags that exclude each other counts; None if both come from the same place."""
    sources = {name: ctx.get_parameter_source(name) for name in (first, second)}
    typed = [name for name, source in sources.items() if source is ParameterSource.COMMANDLINE]
    return typed[0] if len(typed) == 1 else None
