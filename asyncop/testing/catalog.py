"""Which resources are served right now: the built-in ones, and those whose definitions were POSTed.

Also knows how an object looks at another version or group than the one it is kept in: Events are one collection with
two faces, and a custom kind's versions differ by their name only (conversion strategy None).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from asyncop.testing.kinds import KINDS, SELF_REVIEW, Kind
from asyncop.testing.refusals import no_such_resource
from asyncop.testing.schema import builtin
from asyncop.testing.settle import settle

if TYPE_CHECKING:
    from asyncop.testing.schema import Obj
    from asyncop.testing.storage import Stored

_EVENT_FACES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "source": "deprecatedSource",
}
_CORE_EVENT = builtin("core.Event")
_EVENT_BACK = {new: old for old, new in _EVENT_FACES.items()}


class Catalog:
    """The resources by group, version and plural."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], dict[str, Kind]] = {}
        for kind in (*KINDS, SELF_REVIEW):
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a resource, or serve it anew."""
        self._kinds.setdefault((kind.group, kind.version), {})[kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource at all versions."""
        for (served, _), kinds in tuple(self._kinds.items()):
            if served == group:
                kinds.pop(plural, None)
        self._kinds = {key: kinds for key, kinds in self._kinds.items() if kinds}

    def find(self, group: str, version: str, plural: str) -> Kind:
        """The resource.

        Raises:
            RefusedError: 404, it isn't served.
        """
        found = self._kinds.get((group, version), {}).get(plural)
        if found is None:
            raise no_such_resource()
        return found

    def serves(self, group: str, version: str) -> bool:
        """Whether anything is served there."""
        return (group, version) in self._kinds

    def versions(self) -> list[tuple[str, str]]:
        """Groups and versions, in the order in which they appeared."""
        return list(self._kinds)

    def of(self, group: str, version: str) -> list[Kind]:
        """The resources of one group and version, by name."""
        return sorted(self._kinds[group, version].values(), key=lambda kind: kind.plural)

    def kept(self) -> list[Kind]:
        """One kind for each collection there may be."""
        chosen = {collection_name(kind): kind for kinds in self._kinds.values() for kind in reversed(kinds.values())}
        chosen.pop(collection_name(SELF_REVIEW), None)
        return list(chosen.values())

    def by_kind(self, api_version: str, name: str) -> Kind | None:
        """The resource of an object's apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        return next((kind for kind in self._kinds.get((group, version), {}).values() if kind.kind == name), None)


def collection_name(kind: Kind) -> str:
    """Under which its objects are kept."""
    return "events" if kind.qualified == "events.events.k8s.io" else kind.qualified


def to_kept(kind: Kind, obj: Obj) -> Obj:
    """From the form of `kind` to the one objects are kept in."""
    if kind.group == "events.k8s.io":
        obj = {_EVENT_BACK.get(key, key): value for key, value in obj.items()}
        obj["apiVersion"] = "v1"
        obj, _ = settle(obj, _CORE_EVENT, "Event", "v1")
    elif kind.custom is not None:
        obj["apiVersion"] = f"{kind.group}/{kind.custom.storage_version}"
    return obj


def from_kept(kind: Kind, obj: Obj) -> Obj:
    """From the kept form to that of `kind`."""
    if kind.group == "events.k8s.io":
        obj = {_EVENT_FACES.get(key, key): value for key, value in obj.items()}
        obj["apiVersion"] = kind.api_version
        obj, _ = settle(obj, kind.type, kind.kind, kind.version)
    obj["apiVersion"] = kind.api_version
    return obj


def is_kept_as_is(kind: Kind) -> bool:
    """Whether kept objects need no conversion, so that their bytes can be answered."""
    if kind.custom is not None:
        return kind.custom.storage_version == kind.version
    return kind.group != "events.k8s.io"


def present_item(kind: Kind, stored: Stored) -> bytes:
    """The object's bytes as an item of a list: a built-in kind's items don't repeat kind and apiVersion."""
    raw = present(kind, stored)
    head = b'{"kind":"%b","apiVersion":"%b",' % (kind.kind.encode(), kind.api_version.encode())
    if kind.custom is not None or not raw.startswith(head):
        return raw
    return b"{" + raw[len(head) :]


def present(kind: Kind, stored: Stored) -> bytes:
    """The object's bytes as `kind` shows it."""
    if is_kept_as_is(kind):
        return stored.raw
    return msgspec.json.encode(from_kept(kind, stored.decode()))
