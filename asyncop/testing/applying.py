"""Patches of all four forms on their way to an update, server-side apply among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncop.testing import fieldsets, managed
from asyncop.testing.managed import Applying
from asyncop.testing.patches import json_patch, merge_patch, strategic_patch
from asyncop.testing.preparing import blank
from asyncop.testing.refusals import RefusedError, bad_request, not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.kinds import Kind
    from asyncop.testing.objects import Intent, Objects, Target
    from asyncop.testing.schema import Obj


def patch(form: str, kind: Kind, body: Any) -> Callable[[Obj], Obj]:
    """What a JSON, merge or strategic merge patch makes of an object."""
    if form == "json":
        return lambda obj: json_patch(obj, body)
    if not isinstance(body, dict):
        raise bad_request("error decoding patch: the patch is no object")
    if form == "merge":
        return lambda obj: merge_patch(obj, body)
    return lambda obj: strategic_patch(kind.type, obj, body)


def apply(objects: Objects, target: Target, config: Any, intent: Intent, *, force: bool) -> tuple[int, Obj]:
    """Apply a configuration: 201 and the new object, or 200 and what it became.

    Raises:
        RefusedError: as the real server would; 409 for fields of others.
    """
    _check(target, config)
    owner = intent.owner(target.kind, target.subresource, "Apply")
    applying = Applying(owner, force, _reset(target), blank(target.kind))
    if target.key not in objects.collection(target.kind).objects:
        if target.subresource:
            raise not_found(target.who)
        return 201, _create(objects, target, config, intent, applying)
    live = objects.read(target)
    merged, owners = managed.applied(target.kind.type, live, config, applying, target.who)
    return 200, objects.update_applied(target, merged, owners, intent)


def _create(objects: Objects, target: Target, config: Obj, intent: Intent, applying: Applying) -> Obj:
    if config["metadata"].get("uid"):
        raise RefusedError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {target.who.qualified} "{target.name}": uid mismatch: the provided '
            f"object specified uid {config['metadata']['uid']}, and no existing object was found",
            target.who.details(),
        )
    merged, owners = managed.applied(target.kind.type, applying.blank, config, applying, target.who)
    managed.write(merged, owners)
    return objects.create_applied(target.kind, target.namespace, merged, intent)


def _check(target: Target, config: Any) -> None:
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: the configuration is no object")
    kind = target.kind
    given = (config.get("apiVersion"), config.get("kind"))
    if given != (kind.api_version, kind.kind):
        if not all(given):
            raise bad_request("error decoding YAML: apiVersion and kind must be set")
        raise bad_request(f"invalid object type: {given[0]}, Kind={given[1]}")
    metadata = config.setdefault("metadata", {})
    stranger = fieldsets.undeclared(kind.type, config)
    if stranger:
        who = (
            f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.kind}"
        )
        text = f"failed to create typed patch object ({who}): {stranger}: field not declared in schema"
        raise RefusedError(500, "", text)
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", target.name) != target.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        )
    if kind.namespaced:
        metadata.setdefault("namespace", target.namespace)


def _reset(target: Target) -> tuple[tuple[str, ...], ...]:
    if target.subresource == "status":
        prefixes: tuple[tuple[str, ...], ...] = (("f:spec",),)
        return (*prefixes, ("f:metadata",)) if target.kind.custom is not None else prefixes
    return (("f:status",),) if target.kind.has_status else ()
