"""Reads and writes of single objects, in the order in which kube-apiserver takes its decisions.

Everything is synchronous: between two awaits of the server nothing else can happen, so every write is atomic.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncop.testing import managed, validation
from asyncop.testing.catalog import Catalog, collection_name, from_kept, to_kept
from asyncop.testing.managed import Owner
from asyncop.testing.preparing import admit, blank, carry_over, cleaned, separate, shaped
from asyncop.testing.refusals import (
    RefusedError,
    Who,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    modified,
    not_found,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj
    from asyncop.testing.storage import Collection, Storage, Stored

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MANAGER_LENGTH = 128


@dataclass(slots=True)
class Intent:
    """How a write was asked for."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    """Of unknown fields: `Ignore`, `Warn` (a Warning header) or `Strict` (400)."""
    is_patch: bool = False
    """Whose strict validation is worded otherwise."""
    warnings: list[str] = field(default_factory=list)
    """Filled while the write is done."""

    def owner(self, kind: Kind, subresource: str = "", operation: str = "Update") -> Owner:
        """As managedFields name it."""
        return Owner(self.manager[:_MANAGER_LENGTH], operation, kind.api_version, subresource)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> str:
        """In the collection."""
        return self.kind.key(self.namespace, self.name)

    @property
    def who(self) -> Who:
        """In refusals."""
        return self.kind.who(self.name)


class Objects:
    """All objects of a server."""

    def __init__(self, storage: Storage, catalog: Catalog) -> None:
        self.storage, self.catalog = storage, catalog
        self.on_written: list[Callable[[Kind, Obj | None, Obj | None], None]] = []
        """Told the old and the new object after each write that wasn't a dry run, None for what isn't."""

    def collection(self, kind: Kind) -> Collection:
        """The kind's objects and their history."""
        return self.storage.collection(collection_name(kind))

    def stored(self, target: Target) -> Stored:
        """The object.

        Raises:
            RefusedError: 404.
        """
        found = self.collection(target.kind).objects.get(target.key)
        if found is None:
            raise not_found(target.who)
        return found

    def read(self, target: Target) -> Obj:
        """The object, decoded, as the target's kind shows it."""
        return from_kept(target.kind, self.stored(target).decode())

    # create

    def create(self, kind: Kind, namespace: str, obj: Obj, intent: Intent) -> Obj:
        """Create an object; the answer is it.

        Raises:
            RefusedError: as the real server would.
        """
        obj = shaped(kind, obj, intent)
        live = blank(kind)
        if kind.has_status:
            live["status"] = obj.get("status")  # nobody owns what this endpoint doesn't write
        owners = managed.updated(kind.type, live, obj, managed.read(obj), intent.owner(kind))
        obj = self._new(kind, namespace, obj)
        managed.write(obj, owners)
        return self._insert(kind, namespace, obj, intent)

    def create_applied(self, kind: Kind, namespace: str, obj: Obj, intent: Intent) -> Obj:
        """Create what was applied; its owners are in it already."""
        owners = managed.read(obj)
        obj = self._new(kind, namespace, shaped(kind, obj, intent))
        managed.write(obj, owners)
        return self._insert(kind, namespace, obj, intent)

    def _new(self, kind: Kind, namespace: str, obj: Obj) -> Obj:
        metadata = obj["metadata"]
        if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if metadata.get("resourceVersion"):
            raise RefusedError(500, "", "resourceVersion should not be set on objects to be created")
        cleaned(kind, obj)
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
            metadata["name"] = metadata["generateName"][:58] + suffix
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": managed.now()}
        self._admit_namespace(kind, namespace, metadata.get("name", ""))
        admit(kind, obj)
        validation.check_new(kind, obj)
        return obj

    def _admit_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        found = self.storage.collection("namespaces").objects.get(namespace)
        if found is None:
            raise not_found(Who("", "namespaces", "Namespace", namespace))
        if found.decode()["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind.who(name), why, [cause])

    def _insert(self, kind: Kind, namespace: str, obj: Obj, intent: Intent) -> Obj:
        metadata = obj["metadata"]
        collection, key = self.collection(kind), kind.key(namespace, metadata["name"])
        if key in collection.objects:
            raise already_exists(kind.who(metadata["name"]))
        kept = to_kept(kind, obj)
        if not intent.dry_run:
            collection.put(key, kept)
            self._tell(kind, None, kept)
        return from_kept(kind, kept)

    # update

    def update(
        self, target: Target, change: Callable[[Obj], Obj], intent: Intent, *, unconditional: bool = True
    ) -> Obj:
        """Replace the object by what `change` makes of it; unchanged, it keeps its version.

        `unconditional` says whether the change needs no resourceVersion, as patches don't.
        """
        stored = self.stored(target)
        old = from_kept(target.kind, stored.decode())
        changed = change(from_kept(target.kind, stored.decode()))
        is_reset = (changed.get("metadata") or {}).get("managedFields") in ([], [{}])
        new = shaped(target.kind, changed, intent)
        self._check_identity(target, old, new, unconditional)
        owners = managed.read(old)
        if is_reset:
            owners = {}
        is_tracked = bool(owners)
        validation.check_identity(target.kind, old, new)
        carry_over(target.kind, old, new)
        separate(target, old, new)
        if is_tracked:  # an object that nobody owned from its beginning stays so until it is applied
            owner = intent.owner(target.kind, target.subresource)
            owners = managed.updated(target.kind.type, old, new, owners, owner)
        return self._replace(target, (old, new), owners, intent)

    def update_applied(self, target: Target, new: Obj, owners: managed.Owners, intent: Intent) -> Obj:
        """Replace the object by the result of an apply."""
        old = self.read(target)
        new = shaped(target.kind, new, intent)
        self._check_identity(target, old, new, True)
        carry_over(target.kind, old, new)
        separate(target, old, new)
        return self._replace(target, (old, new), owners, intent)

    def _check_identity(self, target: Target, old: Obj, new: Obj, unconditional: bool) -> None:
        before, after = old["metadata"], new["metadata"]
        if after.get("name", target.name) != target.name:
            named = f"the name of the object ({after.get('name')}) does not match the name on the URL ({target.name})"
            raise bad_request(named)
        if target.kind.namespaced and after.setdefault("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if after.get("uid", before["uid"]) != before["uid"] and not unconditional:
            why = f"Precondition failed: UID in precondition: {after['uid']}, UID in object meta: {before['uid']}"
            raise conflict(target.who, why)
        version = after.get("resourceVersion")
        if not version and not unconditional:
            validation.refuse_unconditional(target.kind, target.name)
        if version and version != before["resourceVersion"]:
            raise modified(target.who)

    def _replace(self, target: Target, change: tuple[Obj, Obj], owners: managed.Owners, intent: Intent) -> Obj:
        kind, (old, new) = target.kind, change
        validation.check_change(target.kind, target.subresource, old, new)
        managed.write(new, owners)
        if _same(old, new):
            return old
        kept = to_kept(kind, new)
        if intent.dry_run:
            return from_kept(kind, kept)
        collection = self.collection(kind)
        before = to_kept(kind, old)
        if validation.is_finished(kind, kept):
            collection.remove(target.key)
            self._tell(kind, before, None)
        else:
            collection.put(target.key, kept)
            self._tell(kind, before, kept)
        return from_kept(kind, kept)

    # delete

    def remove(self, target: Target) -> Obj:
        """Take an object out for good; the answer is it under the version of its deletion."""
        collection = self.collection(target.kind)
        before = collection.objects[target.key].decode()
        last = collection.remove(target.key).decode()
        self._tell(target.kind, before, None)
        return from_kept(target.kind, last)

    def put(self, target: Target, obj: Obj) -> Obj:
        """Write an object as it is, as the server's own machinery does: no checks, no owners."""
        collection = self.collection(target.kind)
        before = collection.objects[target.key].decode()
        kept = to_kept(target.kind, obj)
        collection.put(target.key, kept)
        self._tell(target.kind, before, kept)
        return from_kept(target.kind, kept)

    def _tell(self, kind: Kind, old: Obj | None, new: Obj | None) -> None:
        for told in self.on_written:
            told(kind, old, new)


def _same(old: Obj, new: Obj) -> bool:
    """Whether nothing changed but the times at which owners became such."""

    def entries(obj: Obj) -> list[Obj]:
        return [{**entry, "time": ""} for entry in obj["metadata"].get("managedFields", ())]

    if old.keys() != new.keys() or any(old[key] != new[key] for key in old if key != "metadata"):
        return False
    before, after = ({**obj["metadata"], "managedFields": None} for obj in (old, new))
    return before == after and entries(old) == entries(new)
