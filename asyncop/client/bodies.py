"""What the client sends: intents, DeleteOptions, Evictions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from asyncop.api.meta import encode_hook, to_wire, without_none
from asyncop.api.object import Object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncop.api.resource import Resource

_SERVERS_OWN = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)


def intent(obj: Object | Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """An object as it is created or applied: without None, status, empty metadata and what only the server sets."""
    fields = without_none(to_wire(obj if isinstance(obj, Object) else dict(obj)))
    metadata = {
        key: value
        for key, value in (fields.get("metadata") or {}).items()
        if key not in _SERVERS_OWN and value not in ("", {}, [])
    }
    rest = {key: value for key, value in fields.items() if key not in ("status", "metadata", "apiVersion", "kind")}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}


def delete_options(
    grace_period: int | None, propagation: str | None, uid: str | None, resource_version: str | None
) -> dict[str, Any]:
    """DeleteOptions; a precondition that doesn't hold is answered with 409."""
    preconditions = without_none({"uid": uid, "resourceVersion": resource_version})
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace_period,
        "propagationPolicy": propagation,
        "preconditions": preconditions or None,
    }
    sent: dict[str, Any] = without_none(options)
    return sent


def eviction(namespace: str, name: str, grace_period: int | None, uid: str | None) -> dict[str, Any]:
    """An Eviction of a Pod, of the one with that uid if given."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": delete_options(grace_period, None, uid, None),
    }


def encode(body: Any) -> bytes:
    """JSON of dicts, lists, Structs and the value types of `asyncop.api.meta`; None stays, as merge patches need it."""
    return msgspec.json.encode(body, enc_hook=encode_hook)


class _Kinded(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


def with_kind(raw: bytes, resource: Resource) -> bytes:
    """An object's JSON with apiVersion and kind, which the items of a list of built-in kinds lack."""
    if msgspec.json.decode(raw, type=_Kinded).kind:
        return raw
    head = encode({"apiVersion": resource.api_version, "kind": resource.kind})
    return head[:-1] + b"," + raw.lstrip()[1:]
