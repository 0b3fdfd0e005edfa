"""Definitions at work: what a CustomResourceDefinition, once written, makes of the server.

A kind is served from the moment its definition is established, which here is at once; the definition's status says so.
Deleting a definition deletes the objects, then ends the serving and the watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncop.testing import managed
from asyncop.testing.catalog import collection_name
from asyncop.testing.crd import custom_kinds
from asyncop.testing.objects import Objects, Target

if TYPE_CHECKING:
    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    """Follows the definitions of one server."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        objects.on_written.append(self._written)

    def _written(self, kind: Kind, old: Obj | None, new: Obj | None) -> None:
        if kind.kind != "CustomResourceDefinition" or kind.custom is not None:
            return
        if new is None:
            if old is not None:
                self._undefine(old)
        elif new["metadata"].get("deletionTimestamp"):
            self._empty(kind, new)
        else:
            for custom in custom_kinds(new):
                self._objects.catalog.add(custom)
            self._establish(kind, new)

    def _establish(self, kind: Kind, definition: Obj) -> None:
        status = definition.get("status") or {}
        names, versions = definition["spec"]["names"], definition["spec"]["versions"]
        storage = next(version["name"] for version in versions if version.get("storage"))
        stored = list(status.get("storedVersions") or ())
        wanted = {
            "conditions": status.get("conditions") or [_condition("NamesAccepted"), _condition("Established")],
            "acceptedNames": names,
            "storedVersions": stored if storage in stored else [*stored, storage],
        }
        finalizers = definition["metadata"].get("finalizers") or []
        if status == wanted and CLEANUP in finalizers:
            return
        metadata = {
            **definition["metadata"],
            "finalizers": [*finalizers, *([] if CLEANUP in finalizers else [CLEANUP])],
        }
        target = Target(kind, "", definition["metadata"]["name"])
        self._objects.put(target, {**definition, "metadata": metadata, "status": wanted})

    def _empty(self, kind: Kind, definition: Obj) -> None:
        finalizers = definition["metadata"].get("finalizers") or []
        if CLEANUP not in finalizers:
            return
        custom = custom_kinds(definition)[0]
        collection = self._objects.collection(custom)
        for key in tuple(collection.keys):
            namespace, _, name = key.rpartition("/")
            self._objects.remove(Target(custom, namespace, name))
        finalizers = [name for name in finalizers if name != CLEANUP]
        target = Target(kind, "", definition["metadata"]["name"])
        if finalizers:
            self._objects.put(target, {**definition, "metadata": {**definition["metadata"], "finalizers": finalizers}})
        else:
            self._objects.remove(target)

    def _undefine(self, definition: Obj) -> None:
        spec = definition["spec"]
        for custom in custom_kinds(definition):
            collection = self._objects.collection(custom)
            for listener in tuple(collection.listeners):
                end = getattr(listener, "__self__", None)
                if end is not None:
                    end.end()
        self._objects.catalog.remove(spec["group"], spec["names"]["plural"])
        self._objects.storage.drop(collection_name(custom_kinds(definition)[0]))


def _condition(name: str) -> Obj:
    reasons = {
        "NamesAccepted": ("NoConflicts", "no conflicts found"),
        "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
    }
    reason, message = reasons[name]
    return {
        "type": name,
        "status": "True",
        "lastTransitionTime": managed.now(),
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
    }
