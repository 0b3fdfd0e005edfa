"""The verbs that change nothing: get, list, watch, and what the cache needs of them.

A kind is an `Object` class, a selector such as `"deployments.apps"`, or a Resource. With a class, answers are decoded
into its declared fields; with a selector they are `UntypedObject`. Reads go to the server: reading caches is the
store's business. Every call ends in time, as `transport` promises; errors are those of `asyncop.api.errors`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from asyncop.api.errors import DecodeError, GoneError
from asyncop.api.object import Object
from asyncop.api.selectors import Labels, field_selector, label_selector
from asyncop.api.untyped import UntypedObject
from asyncop.client.bodies import with_kind
from asyncop.client.discovery import Discovery
from asyncop.client.log import log
from asyncop.client.target import Target, target_of
from asyncop.client.wire import Codec, LineSplitter, Record, decode_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager

    from asyncop.api.resource import Resource, ResourceSelector
    from asyncop.client.discovery import Kind
    from asyncop.client.transport import Params, Stream, Transport

    Selector = str | tuple[str, ...] | ResourceSelector | Resource
    Fields = str | Mapping[str, str]
    Untyped = Mapping[str, Any]

ObjectT = TypeVar("ObjectT", bound=Object)
List = list  # the verb hides the type

PAGE_SIZE = 500  # client-go's pager
WATCH_TIMEOUT = (300, 600)  # seconds asked of the server, spread as client-go's reflector does
LIST_TIMEOUT = 70.0  # seconds for a page of a list: kube-apiserver itself gives up after 60
SILENCE_MARGIN = 30.0  # a watch that outlives its own timeout by this has lost its server
_JSON = "application/json"


class Reader:
    """Reading calls to one API server. The transport belongs to whoever made it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.namespace = transport.connection.namespace
        """Where namespaced objects are that are named without a namespace."""
        self._discovery = Discovery(transport)

    async def resolve(self, kind: Kind) -> Resource:
        """The resource that `kind` names; see `Discovery.resolve`."""
        return await self._discovery.resolve(kind)

    @overload
    async def get(self, kind: type[ObjectT], name: str, namespace: str | None = None) -> ObjectT: ...
    @overload
    async def get(self, kind: ObjectT) -> ObjectT: ...
    @overload
    async def get(
        self, kind: Selector | Untyped, name: str | None = None, namespace: str | None = None
    ) -> UntypedObject: ...
    async def get(self, kind: Any, name: str | None = None, namespace: str | None = None) -> Any:
        """The object as the server has it now; an object given is read anew.

        Raises:
            NotFoundError: there is no such object, or no such kind.
            DecodeError: it doesn't fit the class.
        """
        target = await self._target(kind, name, namespace)
        return decoded(target, await self.transport.request("GET", target.path()))

    @overload
    async def list(
        self,
        kind: type[ObjectT],
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> List[ObjectT]: ...
    @overload
    async def list(
        self, kind: Selector, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> List[UntypedObject]: ...
    async def list(
        self, kind: Any, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> List[Any]:
        """All objects of one namespace, or of all, read page by page; one consistent state of the server.

        An object that doesn't fit the class is left out with a log line.
        """
        resource = await self.resolve(kind)
        codec, params = _codec(kind), {"limit": str(PAGE_SIZE), **_selectors(labels, fields)}
        found: List[Any] = []
        while True:
            try:
                page = codec.decode_page(await self.list_page(resource, namespace or "", params, _JSON))
            except GoneError:
                if params.pop("continue", None) is None:
                    raise
                found.clear()  # the pages took longer than the server keeps old states: all at once then
                params.pop("limit")
                continue
            found += [obj for record in page.records if (obj := _view(record, resource)) is not None]
            if not page.continue_token:
                return found
            params["continue"] = page.continue_token

    @overload
    def watch(
        self,
        kind: type[ObjectT],
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        resource_version: str = "",
    ) -> AsyncGenerator[tuple[str, ObjectT], None]: ...
    @overload
    def watch(
        self,
        kind: Selector,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        resource_version: str = "",
    ) -> AsyncGenerator[tuple[str, UntypedObject], None]: ...
    async def watch(
        self,
        kind: Any,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        resource_version: str = "",
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """Changes as (ADDED | MODIFIED | DELETED, object), until the server ends the watch after some minutes.

        Without a resource version it begins with an ADDED for each object there is. This is one watch connection and
        no more: it neither reconnects nor relists; a controller's sources do. Leave the loop early under
        `contextlib.aclosing`, or the connection stays until the generator is collected. An object that doesn't fit
        the class is left out with a log line.

        Raises:
            GoneError: the version has expired.
        """
        resource = await self.resolve(kind)
        codec, splitter = _codec(kind), LineSplitter()
        seconds = random.randint(*WATCH_TIMEOUT)
        params = {"watch": "true", "timeoutSeconds": str(seconds), **_selectors(labels, fields)}
        if resource_version:
            params["resourceVersion"] = resource_version
        idle = seconds + SILENCE_MARGIN
        async with self.open_watch(resource, namespace or "", params, _JSON, timeout=None, idle=idle) as stream:
            while chunk := await stream.chunk():
                for line in splitter.feed(chunk):
                    event = codec.decode_line(line)
                    obj = _view(event.record, resource) if event.type != "BOOKMARK" else None
                    if obj is not None:
                        yield event.type, obj

    async def list_page(self, resource: Resource, namespace: str, params: Params, accept: str) -> bytes:
        """One page of a list, undecoded; an empty namespace means all."""
        return await self.transport.request(
            "GET", resource.path(namespace), params=params, accept=accept, timeout=LIST_TIMEOUT
        )

    def open_watch(
        self,
        resource: Resource,
        namespace: str,
        params: Params,
        accept: str,
        timeout: float | None,
        idle: float | None,
    ) -> AbstractAsyncContextManager[Stream]:
        """A watch, undecoded. `timeout` bounds the wait for its first answer, `idle` the silence, both in seconds."""
        return self.transport.stream(resource.path(namespace), params=params, accept=accept, timeout=timeout, idle=idle)

    async def _target(self, what: Any, name: str | None = None, namespace: str | None = None) -> Target:
        return await target_of(self._discovery, what, name, namespace, self.namespace)


def decoded(target: Target, data: bytes) -> Any:
    """The object in an answer, of the type that the call was made with."""
    if target.cls is not None:
        return decode_object(target.cls, data)
    try:
        return UntypedObject(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"the server's {target.resource.kind} can't be read: {error}") from error


def _codec(kind: Any) -> Codec:
    return Codec((kind,), keep_raw=False) if isinstance(kind, type) else Codec((), keep_raw=True)


def _view(record: Record, resource: Resource) -> Any:
    """What a reader sees of a record; None if it is unreadable."""
    if record.raw is not None:
        return UntypedObject(with_kind(record.raw, resource), record.metadata)
    view = record.views[0] if record.views else DecodeError("it is nested too deep to be read")
    if not isinstance(view, DecodeError):
        return view
    metadata = record.metadata
    log().error(
        "Object is unreadable",
        resource=resource.group_resource,
        namespace=metadata.namespace,
        name=metadata.name,
        err=str(view),
    )
    return None


def _selectors(labels: Labels | None, fields: Fields | None) -> dict[str, str]:
    selectors = {"labelSelector": label_selector(labels), "fieldSelector": field_selector(fields)}
    return {name: selector for name, selector in selectors.items() if selector}
