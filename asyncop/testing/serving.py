"""HTTP in front of the objects: routes a request, does what its verb says, answers in the server's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from asyncop.testing import deletion, discovery, lists, reviews
from asyncop.testing.applying import apply, patch
from asyncop.testing.catalog import present, present_item
from asyncop.testing.evicting import evict
from asyncop.testing.objects import Intent, Objects, Target
from asyncop.testing.partial import ACCEPT, partial
from asyncop.testing.refusals import RefusedError, method_not_allowed, no_such_resource, not_found
from asyncop.testing.requests import PATCHES, Address, decode, decode_object, intent, is_true, list_query, watch_query
from asyncop.testing.scaling import read_scale, write_scale
from asyncop.testing.selecting import Selection
from asyncop.testing.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncop.testing.faults import Faults
    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj
    from asyncop.testing.streaming import Streams

_JSON = "application/json"
_BODIES = (_JSON, "application/yaml")


class Front:
    """Answers every request of one server."""

    def __init__(self, objects: Objects, faults: Faults, streams: Streams) -> None:
        self._objects, self._faults, self._streams = objects, faults, streams
        self._verbs: dict[str, Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer; refusals of whatever is below become their Status here."""
        try:
            address = Address.parse(request.path)
            disturbed = self._faults.disturbs(request, address)
            if disturbed is not None and (answer := await disturbed) is not None:
                return answer
            if address is None:
                return self._meta(request)
            return await self._dispatch(request, address)
        except RefusedError as refused:
            return refusal(refused)

    async def _dispatch(self, request: web.BaseRequest, address: Address) -> web.StreamResponse:
        catalog = self._objects.catalog
        if not catalog.serves(address.group, address.version):
            return web.Response(status=404, text="404 page not found\n")
        kind = catalog.find(address.group, address.version, address.plural)
        namespace = address.namespace if kind.namespaced else ""
        if address.namespace and not kind.namespaced:
            if kind.custom is not None:
                return web.Response(status=404, text="404 page not found\n")
            raise no_such_resource()
        target = Target(kind, namespace, address.name, address.subresource)
        serve = self._verbs.get(request.method)
        if serve is None:
            raise method_not_allowed()
        return await serve(request, target)

    # GET

    async def _get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if not target.name:
            if request.query_string and is_true(request.query.get("watch")):
                return await self._watch(request, target.kind, target.namespace)
            return self._list(request, target.kind, target.namespace)
        if "get" not in target.kind.verbs:
            raise method_not_allowed()
        if target.subresource == "scale" and target.kind.has_scale:
            return answer(read_scale(self._objects, target))
        if target.subresource and not (target.subresource == "status" and target.kind.has_status):
            raise no_such_resource()
        raw = present(target.kind, self._objects.stored(target))
        if _wants_partial(request):
            raw = partial(raw)
        return web.Response(body=raw, content_type=_JSON)

    def _list(self, request: web.BaseRequest, kind: Kind, namespace: str) -> web.Response:
        if "list" not in kind.verbs:
            raise method_not_allowed()
        query = request.query
        selection = Selection(kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        now = self._objects.storage.clock.now
        page = lists.page(self._objects.collection(kind), now, selection, list_query(query))
        if not _wants_partial(request):
            return self._encoded(page, kind)
        head = ("PartialObjectMetadataList", "meta.k8s.io/v1")
        body = lists.encode(page, head, lambda stored: partial(present(kind, stored)))
        return web.Response(body=body, content_type=_JSON)

    async def _watch(self, request: web.BaseRequest, kind: Kind, namespace: str) -> web.StreamResponse:
        query = request.query
        selection = Selection(kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        collection = self._objects.collection(kind)
        watcher = Watcher(kind, collection, selection, watch_query(query, partial=_wants_partial(request)))
        return await self._streams.serve(request, watcher)

    # POST

    async def _post(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if target.subresource:
            return await self._post_below(request, target)
        if target.name:
            raise method_not_allowed()
        asked = intent(request.query, request.headers)
        obj = await _body(request)
        if target.kind.group == "authorization.k8s.io":
            return answer(reviews.review(obj, self._faults), 201)
        if target.kind.namespaced and not target.namespace:
            raise method_not_allowed()
        made = self._objects.create(target.kind, target.namespace, obj, asked)
        return answer(made, 201, asked)

    async def _post_below(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if target.kind.kind != "Pod" or target.subresource not in ("eviction", "binding"):
            raise no_such_resource()
        asked = intent(request.query, request.headers)
        obj = await _body(request)
        if target.subresource == "eviction":
            return answer(evict(self._objects, target, obj, asked), 201)
        return answer(self._bind(target, obj), 201)

    def _bind(self, target: Target, obj: Obj) -> Obj:
        pod = self._objects.read(target)
        node = (obj.get("target") or {}).get("name", "")
        if pod["spec"].get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise RefusedError(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{target.name}": {why}')
        pod["spec"]["nodeName"] = node
        self._objects.put(target, pod)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    # PUT and PATCH

    async def _put(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if not target.name:
            raise method_not_allowed()
        _check_subresource(target, ("status", "scale", "finalize"))
        asked = intent(request.query, request.headers)
        obj = await _body(request)
        if target.subresource == "scale":
            return answer(write_scale(self._objects, target, lambda _: obj, asked), 200, asked)
        written = self._objects.update(target, lambda _: obj, asked, unconditional=False)
        return answer(written, 200, asked)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if not target.name:
            raise method_not_allowed()
        _check_subresource(target, ("status", "scale"))
        form = PATCHES.get(request.content_type)
        if form is None or (form == "strategic" and target.kind.custom is not None):
            raise _unknown_patch(request.content_type)
        asked = intent(request.query, request.headers)
        asked.is_patch = form != "apply"
        body = decode(await request.read())
        if form == "apply":
            if not request.query.get("fieldManager"):
                raise _no_manager()
            code, obj = apply(self._objects, target, body, asked, force=is_true(request.query.get("force")))
            return answer(obj, code, asked)
        if target.subresource == "scale":
            change = patch(form, target.kind, body)
            return answer(write_scale(self._objects, target, change, asked), 200, asked)
        return answer(self._objects.update(target, patch(form, target.kind, body), asked), 200, asked)

    # DELETE

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if target.subresource or "delete" not in target.kind.verbs:
            raise method_not_allowed()
        asked = intent(request.query, request.headers)
        options = await _body(request) if request.can_read_body else {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in request.query and name not in options:
                options[name] = int(request.query[name]) if name.startswith("grace") else request.query[name]
        if target.name:
            try:
                return answer(deletion.delete(self._objects, target, options, asked), 200, asked)
            except RefusedError as refused:
                refused.warnings = asked.warnings
                raise
        if "deletecollection" not in target.kind.verbs:
            raise method_not_allowed()
        return self._delete_all(request, target, options, asked)

    def _delete_all(self, request: web.BaseRequest, target: Target, options: Obj, asked: Intent) -> web.Response:
        kind, query = target.kind, request.query
        selection = Selection(kind, target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        collection = self._objects.collection(kind)
        page = lists.page(collection, self._objects.storage.clock.now, selection, list_query(query))
        for stored in page.items:
            namespace, _, name = stored.key.rpartition("/")
            deletion.delete(self._objects, Target(kind, namespace, name), options, asked)
        response = self._encoded(page, kind)
        _warn(response, list(dict.fromkeys(asked.warnings)))
        return response

    def _encoded(self, page: lists.Page, kind: Kind) -> web.Response:
        head, custom = (f"{kind.kind}List", kind.api_version), kind.custom is not None
        body = lists.encode(page, head, lambda stored: present_item(kind, stored), custom=custom)
        return web.Response(body=body, content_type=_JSON)

    # what is no resource

    def _meta(self, request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            raise method_not_allowed()
        path, catalog = request.path.rstrip("/"), self._objects.catalog
        parts = path.strip("/").split("/")
        if path in ("/livez", "/readyz", "/healthz"):
            return web.Response(text="ok")
        if path == "/version":
            return answer(discovery.VERSION)
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            body = msgspec.json.encode(discovery.aggregated(catalog, core=path == "/api")) + b"\n"
            return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED, "Vary": "Accept"})
        if path == "/api":
            return answer(discovery.core_versions(request.host))
        if path == "/apis":
            return answer(discovery.groups(catalog))
        if parts[0] == "apis" and len(parts) == 2 and any(name == parts[1] for name, _ in catalog.versions()):
            return answer({"kind": "APIGroup", "apiVersion": "v1", **discovery.group(catalog, parts[1])})
        group, version = ("", parts[-1]) if parts[0] == "api" else (parts[1] if len(parts) == 3 else "", parts[-1])
        if parts[0] in ("api", "apis") and catalog.serves(group, version) and (parts[0] == "api") == (not group):
            return answer(discovery.resources(catalog, group, version))
        return web.Response(status=404, text="404 page not found\n")


def answer(obj: Obj, status: int = 200, asked: Intent | None = None) -> web.Response:
    """An object as the answer, with the warnings that writing it brought."""
    response = web.Response(body=msgspec.json.encode(obj) + b"\n", status=status, content_type=_JSON)
    _warn(response, asked.warnings if asked else ())
    return response


def _warn(response: web.Response, warnings: Sequence[str]) -> None:
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')


def refusal(refused: RefusedError) -> web.Response:
    """A refusal as the answer."""
    response = web.Response(body=refused.encode(), status=refused.code, content_type=_JSON)
    _warn(response, refused.warnings)
    seconds = (refused.details or {}).get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return response


async def _body(request: web.BaseRequest) -> Obj:
    content_type = request.headers.get("Content-Type", _JSON).partition(";")[0].strip()
    if content_type not in _BODIES:
        text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(_BODIES)}"
        raise RefusedError(415, "UnsupportedMediaType", text)
    return decode_object(await request.read())


def _wants_partial(request: web.BaseRequest) -> bool:
    return ACCEPT in request.headers.get("Accept", "").replace(" ", "")


def _check_subresource(target: Target, known: tuple[str, ...]) -> None:
    kind, name = target.kind, target.subresource
    if "update" not in kind.verbs:
        raise method_not_allowed()
    has = {"": True, "status": kind.has_status, "scale": kind.has_scale, "finalize": kind.kind == "Namespace"}
    if name and (name not in known or not has.get(name)):
        if kind.custom is not None:
            raise not_found(target.who)
        raise no_such_resource()


def _unknown_patch(content_type: str) -> RefusedError:
    if content_type not in PATCHES:
        return RefusedError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    accepted = ", ".join(form for form in PATCHES if "strategic" not in form)
    text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return RefusedError(415, "UnsupportedMediaType", text)


def _no_manager() -> RefusedError:
    cause = {
        "reason": "FieldValueRequired",
        "message": "Required value: is required for apply patch",
        "field": "fieldManager",
    }
    text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
    return RefusedError(422, "Invalid", text, details)
