"""What kube-controller-manager does for deletions: garbage by owner, claims in use, the content of namespaces.

Works after the write that caused it was answered, in the order of the causes. An owner that never existed is treated
as one that is gone, by its uid, as the real collector does.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from asyncop.testing.catalog import collection_name
from asyncop.testing.deletion import delete
from asyncop.testing.kinds import Kind
from asyncop.testing.objects import Intent, Objects, Target
from asyncop.testing.refusals import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.schema import Obj

_CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
_Reference = tuple[Kind, str, str]


class Collector:
    """Follows all writes of one server."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._alive: dict[str, _Reference] = {}
        self._dependents: defaultdict[str, dict[str, _Reference]] = defaultdict(dict)
        self._work: deque[Callable[[], None]] = deque()
        objects.on_written.append(self._written)

    def _written(self, kind: Kind, old: Obj | None, new: Obj | None) -> None:
        obj = new or old
        if obj is None:
            return
        metadata = obj["metadata"]
        uid, reference = metadata["uid"], (kind, metadata.get("namespace", ""), metadata["name"])
        self._index(uid, reference, old, new)
        if new is None:
            self._do(lambda: self._owner_gone(uid))
            self._do(lambda: self._left(reference[1]))
            self._do(lambda: self._dependent_gone(obj))
            if kind.kind == "Pod" and kind.custom is None:
                self._do(lambda: self._pod_gone(reference[1]))
            return
        self._alive[uid] = reference
        if old is None and metadata.get("ownerReferences"):
            self._do(lambda: self._check_owners(uid, reference))
        if metadata.get("deletionTimestamp"):
            self._do(lambda: self._being_deleted(uid, reference))

    def _index(self, uid: str, reference: _Reference, old: Obj | None, new: Obj | None) -> None:
        before, after = _owners(old), _owners(new)
        for owner in before - after:
            self._dependents[owner].pop(uid, None)
            if not self._dependents[owner]:
                del self._dependents[owner]
        for owner in after - before:
            self._dependents[owner][uid] = reference
        if new is None:
            self._alive.pop(uid, None)

    def _do(self, work: Callable[[], None]) -> None:
        if not self._work:
            asyncio.get_running_loop().call_soon(self._run)
        self._work.append(work)

    def _run(self) -> None:
        while self._work:
            self._work[0]()
            self._work.popleft()

    # owners

    def _check_owners(self, uid: str, reference: _Reference) -> None:
        obj = self._read(uid, reference)
        if obj is not None and not any(owner in self._alive for owner in _owners(obj)):
            self._delete(reference)

    def _owner_gone(self, owner: str) -> None:
        for uid, reference in tuple(self._dependents.get(owner, {}).items()):
            obj = self._read(uid, reference)
            if obj is None:
                continue
            if any(other in self._alive for other in _owners(obj) - {owner}):
                self._disown(reference, obj, owner)
            else:
                self._delete(reference)

    def _being_deleted(self, uid: str, reference: _Reference) -> None:
        obj = self._read(uid, reference)
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if "orphan" in finalizers:
            for dependent_uid, dependent in tuple(self._dependents.get(uid, {}).items()):
                found = self._read(dependent_uid, dependent)
                if found is not None:
                    self._disown(dependent, found, uid)
            self._unfinalize(reference, obj, "orphan")
        elif "foregroundDeletion" in finalizers:
            self._foreground(uid, reference, obj)
        if reference[0].custom is not None:
            return
        if reference[0].kind == "Namespace":
            self._empty_namespace(reference[2])
        elif reference[0].kind == "PersistentVolumeClaim" and not self._is_used(reference):
            self._unfinalize(reference, obj, _CLAIM_PROTECTION)

    def _is_used(self, claim: _Reference) -> bool:
        """Whether a Pod that isn't finished mounts the claim."""
        pods = self._objects.storage.collection("pods")
        for key in [key for key in pods.keys if key.startswith(f"{claim[1]}/")]:
            pod = pods.objects[key].decode()
            volumes = pod["spec"].get("volumes") or ()
            claims = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
            if claim[2] in claims and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                return True
        return False

    def _pod_gone(self, namespace: str) -> None:
        kind = self._objects.catalog.find("", "v1", "persistentvolumeclaims")
        for key, stored in tuple(self._objects.collection(kind).objects.items()):
            metadata = stored.decode()["metadata"]
            if key.startswith(f"{namespace}/") and metadata.get("deletionTimestamp"):
                self._being_deleted(metadata["uid"], (kind, namespace, metadata["name"]))

    def _foreground(self, uid: str, reference: _Reference, obj: Obj) -> None:
        blocking = False
        for dependent_uid, dependent in tuple(self._dependents.get(uid, {}).items()):
            found = self._read(dependent_uid, dependent)
            if found is None:
                continue
            blocking = blocking or _blocks(found, uid)
            if not found["metadata"].get("deletionTimestamp"):
                self._delete(dependent, "Foreground" if _blocks(found, uid) else "Background")
        if not blocking:
            self._unfinalize(reference, obj, "foregroundDeletion")

    def _dependent_gone(self, obj: Obj) -> None:
        for owner in _owners(obj):
            if owner in self._alive:
                self._being_deleted_if(owner)

    def _being_deleted_if(self, owner: str) -> None:
        reference = self._alive[owner]
        obj = self._read(owner, reference)
        if obj is not None and obj["metadata"].get("deletionTimestamp"):
            self._being_deleted(owner, reference)

    def _disown(self, reference: _Reference, obj: Obj, owner: str) -> None:
        references = [found for found in obj["metadata"]["ownerReferences"] if found["uid"] != owner]
        obj["metadata"]["ownerReferences"] = references
        if not references:
            del obj["metadata"]["ownerReferences"]
        self._objects.put(Target(*reference), obj)

    def _unfinalize(self, reference: _Reference, obj: Obj, finalizer: str) -> None:
        def change(live: Obj) -> Obj:
            left = [name for name in live["metadata"].get("finalizers") or () if name != finalizer]
            live["metadata"]["finalizers"] = left
            return live

        self._objects.update(Target(*reference), change, Intent("kube-controller-manager"))

    # namespaces

    def _left(self, namespace: str) -> None:
        found = self._objects.storage.collection("namespaces").objects.get(namespace)
        if found is not None and found.decode()["metadata"].get("deletionTimestamp"):
            self._empty_namespace(namespace)

    def _empty_namespace(self, namespace: str) -> None:
        is_empty = True
        for kind in self._objects.catalog.kept():
            if not kind.namespaced:
                continue
            collection = self._objects.storage.collection(collection_name(kind))
            for key in [key for key in collection.keys if key.startswith(f"{namespace}/")]:
                is_empty = False
                if not collection.objects[key].decode()["metadata"].get("deletionTimestamp"):
                    self._delete((kind, namespace, key.partition("/")[2]))
        kind = self._objects.catalog.find("", "v1", "namespaces")
        target = Target(kind, "", namespace, "finalize")
        if is_empty and target.key in self._objects.collection(kind).objects:
            self._objects.update(target, _finalized, Intent("kube-controller-manager"))

    # objects

    def _read(self, uid: str, reference: _Reference) -> Obj | None:
        target = Target(*reference)
        found = self._objects.collection(target.kind).objects.get(target.key)
        obj = found.decode() if found is not None else None
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    def _delete(self, reference: _Reference, policy: str = "Background") -> None:
        try:
            delete(self._objects, Target(*reference), {"propagationPolicy": policy}, Intent("kube-controller-manager"))
        except RefusedError as refused:
            if refused.code != 404:
                raise


def _finalized(namespace: Obj) -> Obj:
    return {**namespace, "spec": {}}


def _owners(obj: Obj | None) -> set[str]:
    return {owner["uid"] for owner in ((obj or {}).get("metadata") or {}).get("ownerReferences") or ()}


def _blocks(obj: Obj, owner: str) -> bool:
    return any(
        reference["uid"] == owner and reference.get("blockOwnerDeletion")
        for reference in obj["metadata"].get("ownerReferences") or ()
    )
