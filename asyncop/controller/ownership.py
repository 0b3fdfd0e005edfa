"""Children: applied with their owner's controller reference, and found again by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from asyncop.api.meta import ObjectMeta, encode_hook, to_wire, without_none
from asyncop.api.object import Object
from asyncop.api.request import Request
from asyncop.client.wire import decode_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncop.client import Client
    from asyncop.controller.context import Stores
    from asyncop.controller.recorder import Regarding

Applied = dict[tuple[str, Request], tuple[bytes, tuple[Any, ...]]]
"""By resource and key: what was applied last, and what identified the child after that."""


def identity(metadata: ObjectMeta) -> tuple[Any, ...]:
    """What tells whether an object has changed in more than its status.

    For kinds with a generation: uid, generation, labels, annotations and the start of its deletion. For kinds without
    one: anything, so the resourceVersion.
    """
    if metadata.generation:
        return (
            metadata.uid,
            metadata.generation,
            metadata.labels,
            metadata.annotations,
            metadata.deletion_timestamp,
        )
    return metadata.uid, metadata.resource_version


async def apply_child(client: Client, stores: Stores, owner: Regarding, child: Any, applied: Applied) -> Any:
    """Server-side apply of `child` with the controller reference of `owner`; see `Context.apply`."""
    intent = _as_mapping(child)
    metadata = intent["metadata"]
    resource = await client.resolve((*_group_version(intent["apiVersion"]), intent["kind"]))
    if resource.namespaced:
        metadata.setdefault("namespace", owner.metadata.namespace or client.namespace)
    _check_owner(owner, resource.namespaced, metadata.get("namespace", ""), f"{intent['kind']} {metadata.get('name')}")
    metadata["ownerReferences"] = [*metadata.get("ownerReferences", ()), _reference(owner)]
    key = (resource.group_resource, Request(metadata.get("namespace", ""), metadata["name"]))
    text = msgspec.json.encode(intent, enc_hook=encode_hook)
    view = stores.of(resource)
    cached = view.metadata_at(key[1]) if view is not None else None
    if view is not None and cached is not None and applied.get(key) == (text, identity(cached)):
        return view.at(key[1])
    answer = await client.apply(intent)
    applied[key] = (text, identity(answer.metadata))
    return decode_object(type(child), answer.raw) if isinstance(child, Object) else answer


def _as_mapping(child: Any) -> dict[str, Any]:
    """The intent as a plain mapping of its own, with apiVersion, kind and metadata."""
    if isinstance(child, Object):
        options = child.__resource__
        intent = {"apiVersion": options.api_version, "kind": options.kind, **without_none(to_wire(child))}
    else:
        intent = without_none(to_wire(dict(child)))
    metadata = {key: value for key, value in (intent.get("metadata") or {}).items() if value not in ("", {}, [], 0)}
    if metadata.get("uid") or metadata.get("resourceVersion"):
        raise ValueError(
            f"{intent.get('kind')} {metadata.get('name')} came from a store or the server; apply an object that says "
            "only what you want"
        )
    if not (intent.get("apiVersion") and intent.get("kind") and metadata.get("name")):
        raise ValueError("an applied object needs apiVersion, kind and metadata.name")
    return {**intent, "metadata": metadata}


def _check_owner(owner: Regarding, child_is_namespaced: bool, namespace: str, child: str) -> None:
    """Owner references don't cross namespaces: the garbage collector would delete such a child."""
    home = owner.metadata.namespace
    if home and not (child_is_namespaced and namespace == home):
        where = f"in namespace {namespace}" if child_is_namespaced else "cluster-scoped"
        raise ValueError(
            f"{child} is {where} and can't be owned by {owner.kind} {owner.metadata.name} in namespace {home}; mark it "
            "by labels and clean up in finalize instead"
        )


def _reference(owner: Regarding) -> Mapping[str, Any]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _group_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version
