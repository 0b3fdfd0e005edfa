"""From flags to a running manager and its exit code.

The order is that in which people want to hear of mistakes: first what can be told from the flags alone; the
configuration's YAML, then files and modules, then the configuration against what they declare; then kubeconfig,
addresses and the API server, which are the manager's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import structlog

from asyncop.api.errors import ConfigError
from asyncop.cli import config, loader, logs
from asyncop.cli.flags import check_name
from asyncop.controller.declaration import Declarations
from asyncop.manager import LeaderElectionOptions, Manager, ManagerOptions
from asyncop.manager.exit import EXIT_CRASH, end_anyway
from asyncop.manager.http import Address, shared_port
from asyncop.operators import BUILTINS, RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncop.cli.config import ControllerConfig
    from asyncop.cli.flags import Flags

log = structlog.get_logger("asyncop")

LEFTOVERS_LIMIT = 5.0  # seconds that tasks and threads which user code has left behind get after the end


def start(ctx: click.Context, flags: Flags) -> int:
    """Run until the end; returns the exit code. The process must end then, and soon does even if something is left.

    Raises:
        click.UsageError: the flags make no sense.
        ConfigError: something that they name doesn't load.
    """
    logs.configure(flags.log_format, flags.log_level)
    try:
        _check_addresses(ctx, flags)
        manager = _manager(ctx, flags, _election(ctx, flags))
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = EXIT_CRASH
            try:
                code = runner.run(manager.run())
            finally:
                end_anyway(LEFTOVERS_LIMIT, code)
            return code
    except ConfigError as error:
        log.debug("Could not start", exc_info=error)
        raise


def _check_addresses(ctx: click.Context, flags: Flags) -> None:
    given = {"--health-bind-address": flags.health_address, "--metrics-bind-address": flags.metrics_address}
    for flag, text in given.items():
        try:
            Address.parse(text)
        except ConfigError as error:
            raise click.UsageError(f"{flag}: {error}", ctx) from error
    if clash := shared_port(flags.health_address, flags.metrics_address):
        raise click.UsageError(f"{' and '.join(given)} need different ports, both have {clash}", ctx)


def _manager(ctx: click.Context, flags: Flags, election: LeaderElectionOptions | None) -> Manager:
    """Everything loaded, checked and put together, nothing started."""
    tree = config.read(flags.config, flags.assignments)
    users = loader.load(flags.files, flags.modules)
    check_name(ctx, flags.name)
    configs = config.check(tree, _known(users), RESERVED)
    chosen = _chosen(users, configs, flags)
    if not (chosen.reconcilers or chosen.tasks):
        raise click.UsageError(
            "nothing to run: give a FILE, -m MODULE or -b NAME, or enable a controller in --config", ctx
        )
    names = [declared.name for declared in chosen.reconcilers]
    log.info("Starting", operator=flags.name, controllers=names, namespaces=flags.namespaces or "all")
    if election is None:
        log.info("No leader election: run one replica only")
    return Manager(
        reconcilers=chosen.reconcilers,
        tasks=chosen.tasks,
        options=ManagerOptions(
            name=flags.name,
            namespaces=flags.namespaces,
            kubeconfig=flags.kubeconfig,
            context=flags.context,
            health_address=flags.health_address,
            metrics_address=flags.metrics_address,
            leader_election=election,
            owns_process=True,
        ),
        controller_options=_controller_options(chosen, configs),
    )


def _controller_options(chosen: Declarations, configs: Mapping[str, ControllerConfig]) -> dict[str, Any]:
    """Those of the users' reconcilers; a ready-made controller has been built with its own."""
    users = [declared.name for declared in chosen.reconcilers if declared.options is not None]
    return {name: configs[name].options for name in users}


def _election(ctx: click.Context, flags: Flags) -> LeaderElectionOptions | None:
    election = flags.election
    if election is None:
        return None
    try:
        return LeaderElectionOptions(
            name=flags.name.lower().replace("_", "-"),  # as the API server wants names of objects
            namespace=election.namespace,
            lease_duration=election.lease_duration,
            renew_deadline=election.renew_deadline,
            retry_period=election.retry_period,
        )
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from error


def _known(users: Declarations) -> dict[str, type[Any] | None]:
    """Every controller that the configuration may speak of, with its options' type."""
    known: dict[str, type[Any] | None] = {name: builtin.options for name, builtin in BUILTINS.items()}
    for declared in users.reconcilers:
        if declared.name in BUILTINS or declared.name in RESERVED:
            raise ConfigError(f"{declared.name!r} is the name of a ready-made controller; give yours another name=")
        known[declared.name] = declared.options
    return known


def _chosen(users: Declarations, configs: Mapping[str, ControllerConfig], flags: Flags) -> Declarations:
    """What is to run: the users' reconcilers unless switched off, and the ready-made ones that are switched on."""
    enabled = [declared for declared in users.reconcilers if configs[declared.name].enabled is not False]
    chosen = Declarations(reconcilers=enabled, tasks=list(users.tasks))
    for name, builtin in BUILTINS.items():
        if name in flags.builtins or configs[name].enabled:
            loader.merge(chosen, builtin.build(configs[name].options))
        elif configs[name].enabled is None and configs[name].options != builtin.options():
            log.warning(f"{name} is configured, but it doesn't run: add -b {name}, or enabled: true or false beside it")
    return chosen


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop where it is installed; None is asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
