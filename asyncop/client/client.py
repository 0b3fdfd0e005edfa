"""The verbs: what a controller, or a program that embeds asyncop, does with objects. `reader` has those that only read.

A call that takes an object takes what was read before, or a plain mapping with apiVersion, kind and metadata. Writes
are sent as they are given: a projection doesn't hold the whole object, so there is no update that would replace it.
Before each write the gate is asked, if there is one, and the write's time limit is clipped to what it has left, so that
nothing is written after the lead may be lost.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, overload

from asyncop.api.errors import LeaseLostError
from asyncop.api.object import Object
from asyncop.client.bodies import delete_options, encode, eviction, intent
from asyncop.client.reader import ObjectT, Reader, decoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.api.resource import Resource
    from asyncop.api.untyped import UntypedObject
    from asyncop.client.discovery import Kind
    from asyncop.client.reader import Selector, Untyped
    from asyncop.client.target import Target
    from asyncop.client.transport import Params, Transport

    WriteObserver = Callable[[Resource, bytes, str], None]
    Gate = Callable[[], float | None]

_JSON = "application/json"
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_READS = frozenset({"GET", "HEAD", "OPTIONS"})

PatchType = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]


class Client(Reader):
    """Calls to one API server. The transport belongs to whoever made it.

    Args:
        transport: carries the calls.
        field_manager: who is said to have written a field; a view of its own for each controller comes from `bound`.
        gate: asked before each write. Returns the seconds that writes are still allowed, or None without a limit;
            raises LeaseLostError.
    """

    def __init__(self, transport: Transport, field_manager: str = "asyncop", gate: Gate | None = None) -> None:
        super().__init__(transport)
        self.field_manager = field_manager
        self.on_write: list[WriteObserver] = []
        """Called with the resource, the object that the server answered, and the field manager after each create,
        apply, patch and patch_status, before the caller has it. Shared by all views; must not raise."""
        self._gate = gate

    def bound(self, *, field_manager: str | None = None, namespace: str | None = None) -> Client:
        """A cheap view of the same client with another field manager or default namespace."""
        view = copy.copy(self)
        view.field_manager = field_manager or self.field_manager
        view.namespace = namespace or self.namespace
        return view

    def gated(self, gate: Gate) -> Client:
        """A view of the same client whose writes pass `gate`."""
        view = copy.copy(self)
        view._gate = gate
        return view

    def check_gate(self) -> float | None:
        """Seconds that writes are allowed from now on; None without a limit.

        Raises:
            LeaseLostError: they aren't any more.
        """
        left = self._gate() if self._gate is not None else None
        if left is not None and left <= 0:
            raise LeaseLostError("the lead may be lost; nothing was sent")
        return left

    @overload
    async def create(self, obj: ObjectT) -> ObjectT: ...
    @overload
    async def create(self, obj: Untyped, kind: type[ObjectT]) -> ObjectT: ...
    @overload
    async def create(self, obj: Untyped, kind: Selector | None = None) -> UntypedObject: ...
    async def create(self, obj: Any, kind: Any = None) -> Any:
        """Create an object and return it as the server has it, of the type given.

        Sent without None, status, uid, resourceVersion. A mapping needs apiVersion and kind, unless `kind` says them.

        Raises:
            AlreadyExistsError: there is one of that name.
            DecodeError: it was created, but the answer doesn't fit the class.
        """
        target = await self._new(obj, kind)
        body = encode(intent(obj, target.resource))
        data = await self._write("POST", target.collection(), {"fieldManager": self.field_manager}, body)
        return self._written(target, data)

    @overload
    async def apply(self, obj: ObjectT, *, force: bool = True, field_manager: str | None = None) -> ObjectT: ...
    @overload
    async def apply(self, obj: Untyped, *, force: bool = True, field_manager: str | None = None) -> UntypedObject: ...
    async def apply(self, obj: Any, *, force: bool = True, field_manager: str | None = None) -> Any:
        """Server-side apply: make the fields given here be so, and drop those that we applied before and left out.

        Creates the object if there is none. `force` takes fields over from other managers.

        Raises:
            ConflictError: without `force`, another manager owns a field; the message names both.
        """
        target = await self._target(obj)
        params = {"fieldManager": field_manager or self.field_manager, "force": "true" if force else "false"}
        body = encode(intent(obj, target.resource))  # JSON is YAML
        data = await self._write("PATCH", target.path(), params, body, "application/apply-patch+yaml")
        return self._written(target, data, field_manager)

    @overload
    async def patch(
        self,
        obj: ObjectT | type[ObjectT],
        patch: Any,
        *,
        name: str | None = None,
        namespace: str | None = None,
        type: PatchType = "merge",
        subresource: str = "",
    ) -> ObjectT: ...
    @overload
    async def patch(
        self,
        obj: Untyped | Selector,
        patch: Any,
        *,
        name: str | None = None,
        namespace: str | None = None,
        type: PatchType = "merge",
        subresource: str = "",
    ) -> UntypedObject: ...
    async def patch(
        self,
        obj: Any,
        patch: Any,
        *,
        name: str | None = None,
        namespace: str | None = None,
        type: PatchType = "merge",
        subresource: str = "",
    ) -> Any:
        """Change some fields of an object (or of a kind's `name`) and return it as it is then.

        A merge patch is a mapping in which None deletes a key and lists are replaced whole; put
        `metadata.resourceVersion` into it to write only what you have read. A JSON patch is a list of operations.

        Raises:
            NotFoundError: there is no such object.
            ConflictError: the resourceVersion in the patch is an old one.
            InvalidError: a `test` of a JSON patch failed, or the result isn't valid.
        """
        target = await self._target(obj, name, namespace)
        params = {"fieldManager": self.field_manager}
        data = await self._write("PATCH", target.path(subresource), params, encode(patch), _PATCH_TYPES[type])
        return self._written(target, data, is_whole=subresource != "scale")

    @overload
    async def patch_status(
        self, obj: ObjectT | type[ObjectT], status: Any, *, name: str | None = None, namespace: str | None = None
    ) -> ObjectT: ...
    @overload
    async def patch_status(
        self, obj: Untyped | Selector, status: Any, *, name: str | None = None, namespace: str | None = None
    ) -> UntypedObject: ...
    async def patch_status(
        self, obj: Any, status: Any, *, name: str | None = None, namespace: str | None = None
    ) -> Any:
        """Merge fields into an object's status: `patch_status(obj, {"phase": "Ready"})`."""
        return await self.patch(obj, {"status": status}, name=name, namespace=namespace, subresource="status")

    async def delete(  # noqa: PLR0913 - the public contract names each of them
        self,
        obj: Kind | Untyped,
        grace_period: int | None = None,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Ask for the deletion of an object (or of a kind's `name`); it may stay for finalizers and its grace period.

        `grace_period` is in seconds; 0 takes a Pod off the server without a word from its kubelet. With `uid` and
        `resource_version` only that very object, in that very state, is deleted.

        Raises:
            NotFoundError: there is no such object (any more).
            ConflictError: `uid` or `resource_version` don't fit what is there.
        """
        target = await self._target(obj, name, namespace)
        body = encode(delete_options(grace_period, propagation, uid, resource_version))
        await self._write("DELETE", target.path(), (), body)

    async def evict(
        self,
        obj: Kind | Untyped,
        grace_period: int | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Delete a Pod unless its disruption budget forbids it. Of an object given, exactly that one is meant.

        Raises:
            TooManyRequestsError: a budget forbids it now; not retried here, since that may last.
            NotFoundError: there is no such Pod.
            ConflictError: another Pod has the name by now.
        """
        target = await self._target(obj, name, namespace)
        body = encode(eviction(target.namespace, target.name, grace_period, target.uid or None))
        await self._write("POST", target.path("eviction"), (), body)

    async def scale(
        self, obj: Kind | Untyped, replicas: int, *, name: str | None = None, namespace: str | None = None
    ) -> None:
        """Set the replicas of anything with a scale subresource."""
        target = await self._target(obj, name, namespace)
        body, params = encode({"spec": {"replicas": replicas}}), {"fieldManager": self.field_manager}
        await self._write("PATCH", target.path("scale"), params, body, _PATCH_TYPES["merge"])

    async def raw(  # noqa: PLR0913 - one HTTP request has as many independent parts
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> bytes:
        """Any request to the API server; what isn't a read passes the gate. `timeout` is in seconds.

        `repeatable` says of a write that doing it twice is as good as once, so that it is tried again like a read.
        """
        if method.upper() not in _READS:
            timeout = self._clipped(timeout)
        return await self.transport.request(
            method.upper(),
            path,
            params=params,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
            repeatable=repeatable,
        )

    async def _new(self, obj: Any, kind: Any) -> Target:
        if kind is None or isinstance(obj, Object):
            return await self._target(obj)
        own = (obj.get("metadata") or {}).get("namespace")
        return await self._target(kind, namespace=own)

    async def _write(self, method: str, path: str, params: Params, body: bytes, content_type: str = _JSON) -> bytes:
        timeout = self._clipped(None)
        return await self.transport.request(
            method, path, params=params, body=body, content_type=content_type, timeout=timeout
        )

    def _clipped(self, timeout: float | None) -> float | None:
        left = self.check_gate()
        return timeout if left is None else min(left, self.transport.timeout if timeout is None else timeout)

    def _written(self, target: Target, data: bytes, field_manager: str | None = None, *, is_whole: bool = True) -> Any:
        if is_whole:
            for observe in self.on_write:
                observe(target.resource, data, field_manager or self.field_manager)
        return decoded(target, data)
