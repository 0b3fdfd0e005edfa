"""Which object a call is about: a kind with a name, or an object that was read before.

Names are checked here, since an empty one would turn the URL of an object into that of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncop.api.object import Object
from asyncop.api.resource import Resource, ResourceSelector
from asyncop.api.untyped import UntypedObject

if TYPE_CHECKING:
    from asyncop.client.discovery import Discovery, Kind


class Target(NamedTuple):
    """One object, or the collection that it is created in."""

    resource: Resource
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    cls: type[Object] | None
    """What answers are decoded into; None: UntypedObject."""
    uid: str = ""
    """Of the object that was given; empty if a name was."""

    def path(self, subresource: str = "") -> str:
        """URL path of the object.

        Raises:
            ValueError: the name is missing, or none that an object can have.
        """
        if not self.name:
            raise ValueError(f"which {self.resource.kind}? Give its name")
        if self.name in (".", "..") or "/" in self.name or "%" in self.name:
            raise ValueError(f"{self.name!r} is no name of a {self.resource.kind}")
        return self.resource.path(self.namespace, self.name, subresource)

    def collection(self) -> str:
        """URL path that a new object is posted to."""
        return self.resource.path(self.namespace)


async def target_of(
    discovery: Discovery, what: Any, name: str | None, namespace: str | None, default_namespace: str
) -> Target:
    """The object that a call's arguments mean.

    `what` is a kind (with `name`) or an object: an `Object`, an `UntypedObject` or a plain mapping with apiVersion,
    kind and metadata. For a namespaced kind the namespace is the one given, else the object's, else the default.

    Raises:
        NotFoundError, ConfigError: as `Discovery.resolve`.
        ValueError: an object doesn't say its kind.
    """
    if isinstance(what, (Object, Mapping)):
        metadata = _metadata(what)
        resource = await discovery.resolve(_kind_of(what))
        cls = type(what) if isinstance(what, Object) else None
        return Target(
            resource,
            _namespace(resource, namespace, metadata.get("namespace"), default_namespace),
            metadata.get("name") or "",
            cls,
            metadata.get("uid") or "",
        )
    resource = await discovery.resolve(what)
    cls = what if isinstance(what, type) else None
    return Target(resource, _namespace(resource, namespace, None, default_namespace), name or "", cls)


def _namespace(resource: Resource, given: str | None, own: str | None, default: str) -> str:
    return (given or own or default) if resource.namespaced else ""


def _metadata(obj: Object | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(obj, (Object, UntypedObject)):
        metadata = obj.metadata
        return {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return obj.get("metadata") or {}


def _kind_of(obj: Object | Mapping[str, Any]) -> Kind:
    if isinstance(obj, Object):
        return type(obj)
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
        raise ValueError("the object has no apiVersion and kind; add them, or name its kind in the call")
    group, _, version = api_version.rpartition("/")
    return ResourceSelector(kind, group, version)
