"""What an operator is doing right now, for people: the log on SIGUSR1 and `/debug/objects`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.api.request import Request

if TYPE_CHECKING:
    from asyncop.manager.operation import Operation

log = structlog.get_logger("asyncop.manager")


def log_state(operation: Operation | None) -> None:
    """One log line for each queue, store and task."""
    if operation is None:
        log.info("State: waiting for the API server")
        return
    for controller in operation.controllers:
        log.info("State of queue", controller=controller.name, **controller.state())
    for informer in operation.informers:
        log.info(
            "State of store",
            resource=informer.scope.resource.group_resource,
            objects=len(informer.store),
            synced=informer.is_synced,
            failures=list(informer.failures.values()),
        )
    for task in asyncio.all_tasks():
        stack = task.get_stack(limit=1)
        where = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else ""
        log.info("State of task", task=task.get_name(), at=where)


def describe_object(operation: Operation | None, resource: str, namespace: str, name: str) -> dict[str, Any]:
    """What every controller of a resource knows of one object.

    `resource` is a plural, with its group if it has one (`deployments.apps`); `namespace` is `-` for cluster-scoped.

    Raises:
        LookupError: no controller has that resource as its kind; the message names those there are.
    """
    prepared = [controller for controller in (operation.controllers if operation else []) if controller.is_prepared]
    request = Request("" if namespace == "-" else namespace, name)
    known = {
        controller.name: controller.describe(request)
        for controller in prepared
        if controller.resource.group_resource == resource
    }
    if not known:
        there = ", ".join(sorted({controller.resource.group_resource for controller in prepared})) or "none yet"
        raise LookupError(f"no controller has {resource} as its kind; there are: {there}")
    return known
