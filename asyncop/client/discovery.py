"""Which resources the server has, and which of them somebody means.

What names its group and version (`Object` classes, `"apps/v1/deployments"`) costs one small request a group version, or
none if a class gives `plural` and `namespaced`. Other names need the whole list: two requests where the server knows
aggregated discovery (Kubernetes 1.27 and later), one a group version else. Answers are kept; what isn't found in them
is asked for once more, since a CRD may be new. Waiting for a kind that isn't there yet is left to the caller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from asyncop.api.errors import AsyncopError, ConfigError, DecodeError, NotFoundError
from asyncop.api.object import Object
from asyncop.api.resource import Resource, ResourceSelector
from asyncop.client.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncop.client.transport import Transport

    Kind = type[Object] | Object | Resource | ResourceSelector | str | tuple[str, ...]

_AGGREGATED = ",".join(
    [f"application/json;g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList" for v in ("v2", "v2beta1")]
    + ["application/json"]
)


class Discovery:
    """The resources of one server, as far as somebody asked."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._all: list[Resource] | None = None
        self._versions: dict[tuple[str, str], list[Resource]] = {}
        self._asking = asyncio.Lock()

    def forget(self) -> None:
        """Ask the server anew from now on, e.g. after CRDs changed."""
        self._all = None
        self._versions.clear()

    async def resolve(self, kind: Kind) -> Resource:
        """The resource that `kind` names; the version that the server prefers where none is given.

        A name that several groups have means the core group's. Plurals go before kinds and singulars, these before
        short names.

        Raises:
            NotFoundError: the server has none of that name, e.g. since its CRD isn't installed.
            ConfigError: several groups have it (the message names them), or the text names no resource.
        """
        if isinstance(kind, Resource):
            return kind
        if isinstance(kind, Object) or (isinstance(kind, type) and issubclass(kind, Object)):
            return await self._resolve_class(kind)
        selector = _selector(kind)
        group, version = selector.group, selector.version
        if group is None or version is None:
            found = await self._find(selector)
        else:
            found = await self._find_in(group, version, selector.matches)
        if not found:
            raise _not_found(f"the server has no resource {_as_written(kind)!r}; is its CRD installed?")
        return _preferred(selector, found, _as_written(kind))

    async def _resolve_class(self, cls: type[Object] | Object) -> Resource:
        options = cls.__resource__
        group, version = options.group_version
        if options.plural is not None and options.namespaced is not None:
            return Resource(
                group=group,
                version=version,
                plural=options.plural,
                kind=options.kind,
                namespaced=options.namespaced,
                singular=options.singular or options.kind.lower(),
                short_names=options.short_names,
                categories=options.categories,
            )
        found = await self._find_in(
            group, version, lambda each: each.kind == options.kind and options.plural in (None, each.plural)
        )
        if not found:
            raise _not_found(f"the server has no kind {options.kind} in {options.api_version}; is its CRD installed?")
        return found[0]

    async def _find(self, selector: ResourceSelector) -> list[Resource]:
        known = self._all
        found = [resource for resource in known or () if selector.matches(resource)]
        if found:
            return found
        async with self._asking:
            if self._all is known:  # nobody else has asked meanwhile
                self._all = await self._everything()
        return [resource for resource in self._all or () if selector.matches(resource)]

    async def _find_in(self, group: str, version: str, is_wanted: Callable[[Resource], bool]) -> list[Resource]:
        known = self._versions.get((group, version))
        found = [resource for resource in known or () if is_wanted(resource)]
        if found:
            return found
        async with self._asking:
            if self._versions.get((group, version)) is known:
                self._versions[group, version] = await self._ask(group, version)
        return [resource for resource in self._versions.get((group, version), ()) if is_wanted(resource)]

    async def _ask(self, group: str, version: str) -> list[Resource]:
        """The resources of one group version; none if the server doesn't have it."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = _decode(_ResourceList, await self._transport.request("GET", path))
        except NotFoundError:
            return []
        return list(answer.read(group, version))

    async def _everything(self) -> list[Resource]:
        resources: list[Resource] = []
        for root in ("/api", "/apis"):
            answer = _decode(_Root, await self._transport.request("GET", root, accept=_AGGREGATED))
            if answer.kind == "APIGroupDiscoveryList":
                resources.extend(answer.read())
            else:
                resources.extend(await self._one_by_one(answer))
        return resources

    async def _one_by_one(self, root: _Root) -> list[Resource]:
        """For servers that don't aggregate; a group whose own server is down is left out."""
        parts = await asyncio.gather(*(self._ask_leniently(*each) for each in root.group_versions()))
        return [resource for part in parts for resource in part]

    async def _ask_leniently(self, group: str, version: str) -> list[Resource]:
        try:
            return await self._ask(group, version)
        except AsyncopError as error:
            log().warning("Could not discover an API group", group=group, version=version, err=str(error))
            return []


def _selector(kind: str | tuple[str, ...] | ResourceSelector) -> ResourceSelector:
    if isinstance(kind, ResourceSelector):
        return kind
    try:
        return ResourceSelector.parse(kind)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{kind!r} names no resource: {error}") from error


def _as_written(kind: str | tuple[str, ...] | ResourceSelector) -> str:
    return "/".join(kind) if isinstance(kind, tuple) else str(kind)


def _preferred(selector: ResourceSelector, found: list[Resource], name: str) -> Resource:
    """The one of these that the selector means; they come in the server's order of preference."""
    if selector.group is None:
        found = [resource for resource in found if not resource.group] or found
    best = min(_rank(selector, resource) for resource in found)
    first: dict[str, Resource] = {}  # of the versions of a resource
    for resource in found:
        if _rank(selector, resource) == best:
            first.setdefault(resource.group_resource, resource)
    if len(first) > 1:
        raise ConfigError(f"{name!r} may be any of {', '.join(sorted(first))}; write one of these")
    return next(iter(first.values()))


def _rank(selector: ResourceSelector, resource: Resource) -> int:
    name = selector.name.lower()
    if name == resource.plural:
        return 0
    return 1 if name in (resource.singular, resource.kind.lower()) else 2


def _not_found(message: str) -> NotFoundError:
    return NotFoundError(404, "NotFound", message)


# -- what the server answers; aggregated and plain forms of both roots in one


class _GroupVersionKind(msgspec.Struct):
    kind: str = ""


class _Sub(msgspec.Struct):
    subresource: str


class _Discovered(msgspec.Struct, rename="camel"):
    resource: str
    scope: str = ""
    response_kind: _GroupVersionKind | None = None
    singular_resource: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[_Sub, ...] = ()


class _DiscoveredVersion(msgspec.Struct):
    version: str
    resources: tuple[_Discovered, ...] = ()


class _GroupMeta(msgspec.Struct, frozen=True):
    name: str = ""


class _DiscoveredGroup(msgspec.Struct):
    metadata: _GroupMeta = _GroupMeta()
    versions: tuple[_DiscoveredVersion, ...] = ()


class _PlainVersion(msgspec.Struct):
    version: str


class _PlainGroup(msgspec.Struct, rename="camel"):
    name: str
    versions: tuple[_PlainVersion, ...] = ()
    preferred_version: _PlainVersion | None = None


class _Root(msgspec.Struct):
    kind: str
    items: tuple[_DiscoveredGroup, ...] = ()
    versions: tuple[str, ...] = ()
    groups: tuple[_PlainGroup, ...] = ()

    def read(self) -> Iterable[Resource]:
        """The resources of the aggregated form."""
        for group in self.items:
            for version in group.versions:
                for found in version.resources:
                    if found.response_kind is None:
                        continue  # its server is down and nothing is known but the name
                    yield Resource(
                        group=group.metadata.name,
                        version=version.version,
                        plural=found.resource,
                        kind=found.response_kind.kind,
                        namespaced=found.scope == "Namespaced",
                        singular=found.singular_resource,
                        short_names=found.short_names,
                        categories=found.categories,
                        verbs=found.verbs,
                        subresources=tuple(sub.subresource for sub in found.subresources),
                    )

    def group_versions(self) -> Iterable[tuple[str, str]]:
        """The group versions of the plain form, preferred ones first within a group."""
        yield from (("", version) for version in self.versions)
        for group in self.groups:
            versions = [version.version for version in group.versions]
            if group.preferred_version is not None:
                versions.sort(key=group.preferred_version.version.__ne__)  # a stable sort keeps the rest in order
            yield from ((group.name, version) for version in versions)


class _Listed(msgspec.Struct, rename="camel"):
    name: str
    kind: str
    namespaced: bool
    singular_name: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()


class _ResourceList(msgspec.Struct):
    resources: tuple[_Listed, ...] | None = None

    def read(self, group: str, version: str) -> Iterable[Resource]:
        """The resources of one group version; subresources are listed among them as `pods/status`."""
        listed = self.resources or ()
        for found in listed:
            if "/" in found.name:
                continue
            prefix = f"{found.name}/"
            yield Resource(
                group=group,
                version=version,
                plural=found.name,
                kind=found.kind,
                namespaced=found.namespaced,
                singular=found.singular_name or found.kind.lower(),
                short_names=found.short_names,
                categories=found.categories,
                verbs=found.verbs,
                subresources=tuple(each.name.removeprefix(prefix) for each in listed if each.name.startswith(prefix)),
            )


_AnswerT = TypeVar("_AnswerT")


def _decode(cls: type[_AnswerT], data: bytes) -> _AnswerT:
    try:
        decoded: Any = msgspec.json.decode(data, type=cls)
    except msgspec.DecodeError as error:
        raise DecodeError(f"the server's list of resources can't be read: {error}") from error
    answer: _AnswerT = decoded
    return answer
