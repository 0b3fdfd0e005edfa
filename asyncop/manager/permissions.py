"""A look at start whether the operator may do what its reconcilers declare; what is missing is said as a rule to add.

It asks the server (SelfSubjectAccessReview) and changes nothing: a missing right keeps only what needs it from working,
and one that is granted later is picked up by the next try.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import structlog

from asyncop.api.errors import AsyncopError
from asyncop.controller.rights import CLUSTER, Right, of_reconciler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncop.client import Client
    from asyncop.controller import Controller

log = structlog.get_logger("asyncop.manager")

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVENTS = Right("events.k8s.io", "events", "create", None)


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def check_permissions(
    client: Client, controllers: Iterable[Controller], namespaces: tuple[str, ...] | None
) -> None:
    """Log one warning for each resource that lacks rights. Ends early, quietly, if the server can't be asked."""
    try:
        for controller in controllers:
            if not controller.is_prepared:
                continue  # its kind is missing: that is told already
            resolved = {kind: await client.resolve(kind) for kind in controller.kinds}
            wanted = of_reconciler(controller.declared, resolved.__getitem__)
            placed = [
                right._replace(namespaces=right.namespaces or namespaces or CLUSTER) for right in [*wanted, EVENTS]
            ]
            _tell(controller.name, [right for right in placed if not await _is_allowed(client, right)])
    except (AsyncopError, msgspec.DecodeError) as error:
        log.debug("Could not check permissions", err=str(error))


async def _is_allowed(client: Client, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
    for namespace in right.namespaces or CLUSTER:
        body = {"spec": {"resourceAttributes": {**attributes, "namespace": namespace}}}
        answer = await client.raw("POST", REVIEWS, body=msgspec.json.encode(body))
        if not msgspec.json.decode(answer, type=_Review).status.allowed:
            return False
    return True


def _tell(controller: str, missing: list[Right]) -> None:
    verbs: dict[tuple[tuple[str, ...], str, str], list[str]] = defaultdict(list)
    for right in missing:
        verbs[right.namespaces or CLUSTER, right.group, right.resource].append(right.verb)
    for (namespaces, group, resource), names in verbs.items():
        where = "the ClusterRole" if namespaces == CLUSTER else f"a Role in {', '.join(namespaces)}"
        rule = {"apiGroups": [group], "resources": [resource], "verbs": names}
        log.warning("Missing right", controller=controller, add_to=where, rule=msgspec.json.encode(rule).decode())
