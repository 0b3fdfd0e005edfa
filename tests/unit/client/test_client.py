"""The verbs: which request each makes, and what becomes of the answer."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import asyncop
from asyncop.api.errors import ConflictError, DecodeError, GoneError, LeaseLostError, NotFoundError, TransportError
from asyncop.client import Client
from tests.unit.client.server import LONG, Server, lines, never, ok, status

if TYPE_CHECKING:
    from asyncop.api.resource import Resource
    from asyncop.client import Transport

pytestmark = pytest.mark.asyncio


class Spec(asyncop.Struct):
    node_name: str | None = None
    priority: int = 0


class Pod(asyncop.Object, api_version="v1", kind="Pod", plural="pods", namespaced=True):
    spec: Spec = Spec()


class Node(asyncop.Object, api_version="v1", kind="Node", plural="nodes", namespaced=False):
    pass


PODS = {
    "resources": [
        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "shortNames": ["po"], "verbs": []},
        {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": []},
    ]
}


def pod(name: str = "a", namespace: str = "ns", version: str = "1", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def typed(**spec: Any) -> Pod:
    return msgspec.convert(pod(**spec), Pod)


def page(*items: dict[str, Any], token: str = "") -> dict[str, Any]:
    bare = [{key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in items]
    return {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": token}, "items": bare}


# -- reads


async def test_get_decodes_into_the_class(server: Server, client: Client) -> None:
    server.then(ok(pod(nodeName="n1")))
    found = await client.get(Pod, "a", "ns")
    assert isinstance(found, Pod)
    assert found.spec.node_name == "n1"
    assert (server.received[0].method, server.received[0].path) == ("GET", "/api/v1/namespaces/ns/pods/a")


async def test_get_of_an_object_reads_it_anew(server: Server, client: Client) -> None:
    server.then(ok(pod(nodeName="n2")))
    assert (await client.get(typed(nodeName="n1"))).spec.node_name == "n2"
    assert server.received[0].path == "/api/v1/namespaces/ns/pods/a"


async def test_get_by_selector_gives_a_mapping_that_can_be_read_anew(server: Server, client: Client) -> None:
    server.routes |= {"/api/v1": ok(PODS), "/api/v1/namespaces/ns/pods/a": ok(pod(nodeName="n1"))}
    found = await client.get("v1/pods", "a", "ns")
    assert (found["spec"]["nodeName"], found.metadata.name) == ("n1", "a")
    assert (await client.get(found))["spec"] == {"nodeName": "n1"}


async def test_namespaces_default_to_the_views_and_are_none_for_cluster_kinds(server: Server, client: Client) -> None:
    server.then(ok(pod()), ok(pod()), ok({}))
    await client.get(Pod, "a")
    view = client.bound(namespace="shop")
    await view.get(Pod, "a")
    await view.get(Node, "n", "ignored")
    assert [request.path for request in server.received] == [
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/shop/pods/a",
        "/api/v1/nodes/n",
    ]


@pytest.mark.parametrize("name", ["", None, ".", "..", "a/b", "a%2Fb"])
async def test_a_name_that_would_mean_another_url_is_refused(server: Server, client: Client, name: Any) -> None:
    with pytest.raises(ValueError, match="Node"):
        await client.get(Node, name)
    with pytest.raises(ValueError, match="Node"):
        await client.delete(Node, name=name)
    assert server.received == []


async def test_get_of_what_does_not_fit_is_a_decode_error(server: Server, client: Client) -> None:
    server.then(ok(pod(priority="high")), ok(b"<html>"))
    with pytest.raises(DecodeError, match="priority"):
        await client.get(Pod, "a", "ns")
    server.routes["/api/v1"] = ok(PODS)
    with pytest.raises(DecodeError, match="Pod can't be read"):
        await client.get("v1/pods", "a", "ns")


async def test_list_reads_every_page(server: Server, client: Client) -> None:
    server.then(ok(page(pod("a"), pod("b"), token="more")), ok(page(pod("c"))))
    found = await client.list(Pod, "ns", labels={"app": "web"}, fields={"spec.nodeName": "n1"})
    assert [each.metadata.name for each in found] == ["a", "b", "c"]
    first, second = (request.query for request in server.received)
    assert first == {"limit": "500", "labelSelector": "app=web", "fieldSelector": "spec.nodeName=n1"}
    assert second == first | {"continue": "more"}


async def test_list_without_a_namespace_is_of_all(server: Server, client: Client) -> None:
    server.then(ok(page()))
    assert await client.bound(namespace="shop").list(Pod) == []
    assert server.received[0].path == "/api/v1/pods"


async def test_list_by_selector_gives_objects_that_know_their_kind(server: Server, client: Client) -> None:
    server.routes |= {"/api/v1": ok(PODS), "/api/v1/pods": ok(page(pod("a", nodeName="n1")))}
    (found,) = await client.list("v1/po")
    assert (found["apiVersion"], found["kind"], found["spec"]) == ("v1", "Pod", {"nodeName": "n1"})
    assert found.metadata.name == "a"


async def test_list_begins_anew_when_the_server_forgot_the_first_page(server: Server, client: Client) -> None:
    server.then(ok(page(pod("a"), token="old")), status(410, "Expired"), ok(page(pod("b"), pod("c"))))
    assert [each.metadata.name for each in await client.list(Pod)] == ["b", "c"]
    assert server.received[2].query == {}


async def test_list_leaves_out_what_does_not_fit(server: Server, client: Client) -> None:
    server.then(ok(page(pod("a", priority="high"), pod("b"))))
    assert [each.metadata.name for each in await client.list(Pod)] == ["b"]


async def test_watch_gives_changes_until_it_ends(server: Server, client: Client) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "7"}}}
    bad = {"type": "ADDED", "object": pod("bad", priority="high")}
    events = [{"type": kind, "object": pod(kind.lower())} for kind in ("ADDED", "MODIFIED", "DELETED")]
    server.then(lines(events[0], bookmark, bad, *events[1:]))
    seen = [(kind, obj.metadata.name) async for kind, obj in client.watch(Pod, "ns", resource_version="5")]
    assert seen == [("ADDED", "added"), ("MODIFIED", "modified"), ("DELETED", "deleted")]
    query = server.received[0].query
    assert (query["watch"], query["resourceVersion"]) == ("true", "5")
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_watch_raises_what_an_error_line_says(server: Server, client: Client) -> None:
    server.then(lines({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}))
    with pytest.raises(GoneError, match="too old"):
        await anext(client.watch(Pod))


async def test_watch_by_selector_can_be_left_early(server: Server, client: Client) -> None:
    server.routes["/api/v1"] = ok(PODS)
    server.then(lines({"type": "ADDED", "object": pod("a", nodeName="n")}, end=never))
    async with contextlib.aclosing(client.watch("v1/pods")) as changes:
        async for _, obj in changes:
            assert obj["spec"] == {"nodeName": "n"}
            break


# -- writes


async def test_create_sends_the_intent_and_returns_what_the_server_made_of_it(server: Server, client: Client) -> None:
    server.then(ok(pod(nodeName="n1", priority=5)))
    created = await client.create(typed(nodeName="n1"))
    assert (created.spec.priority, created.metadata.uid) == (5, "uid-a")
    request = server.received[0]
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/pods")
    assert request.query == {"fieldManager": "tester"}
    assert request.json == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"nodeName": "n1", "priority": 0},
    }


async def test_create_drops_none_status_and_what_only_the_server_sets(server: Server, client: Client) -> None:
    server.routes["/api/v1"] = ok(PODS)
    server.then(ok(pod()))
    read = pod() | {"status": {"phase": "Running"}, "spec": {"a": None, "b": [{"c": None}]}}
    read["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "generation": 3}
    await client.create(read)
    assert server.received[1].json == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"b": [{}]},
    }


async def test_create_of_a_mapping_may_be_told_its_kind(server: Server, client: Client) -> None:
    server.then(ok(pod()))
    assert isinstance(await client.create({"metadata": {"generateName": "a-", "namespace": "x"}}, Pod), Pod)
    assert server.received[0].path == "/api/v1/namespaces/x/pods"
    assert server.received[0].json["kind"] == "Pod"


async def test_a_mapping_without_a_kind_is_refused(server: Server, client: Client) -> None:
    with pytest.raises(ValueError, match="no apiVersion and kind"):
        await client.create({"metadata": {"name": "a"}})
    assert server.received == []


async def test_apply_is_server_side_and_takes_over_by_default(server: Server, client: Client) -> None:
    server.then(ok(pod()), ok(pod()))
    await client.apply(typed())
    await client.apply(typed(), force=False, field_manager="other")
    first, second = server.received
    assert (first.method, first.path) == ("PATCH", "/api/v1/namespaces/ns/pods/a")
    assert first.headers["Content-Type"] == "application/apply-patch+yaml"
    assert first.query == {"fieldManager": "tester", "force": "true"}
    assert second.query == {"fieldManager": "other", "force": "false"}
    assert first.json["metadata"] == {"name": "a", "namespace": "ns"}


async def test_patch_merges_and_keeps_none_for_deletion(server: Server, client: Client) -> None:
    server.then(ok(pod(priority=7)))
    patched = await client.patch(typed(), {"metadata": {"labels": {"x": None}}})
    assert patched.spec.priority == 7
    request = server.received[0]
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.json == {"metadata": {"labels": {"x": None}}}


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [("json", "application/json-patch+json"), ("strategic", "application/strategic-merge-patch+json")],
)
async def test_patch_knows_the_other_types_and_names(
    server: Server, client: Client, kind: Any, content_type: str
) -> None:
    server.then(ok(pod()))
    await client.patch(Pod, [{"op": "test"}], name="b", namespace="x", type=kind, subresource="ephemeralcontainers")
    request = server.received[0]
    assert request.path == "/api/v1/namespaces/x/pods/b/ephemeralcontainers"
    assert (request.headers["Content-Type"], request.json) == (content_type, [{"op": "test"}])


async def test_times_go_over_the_wire_as_the_server_wants_them(server: Server, client: Client) -> None:
    from datetime import UTC, datetime

    server.then(ok(pod()))
    moment = asyncop.MicroTime.of(datetime(2026, 1, 1, 12, 0, 0, 0, tzinfo=UTC))
    await client.patch(typed(), {"spec": {"renewTime": moment}})
    assert server.received[0].json == {"spec": {"renewTime": "2026-01-01T12:00:00.000000Z"}}


async def test_patch_status_goes_to_the_subresource(server: Server, client: Client) -> None:
    server.then(ok(pod()))
    await client.patch_status(typed(), {"phase": "Ready"})
    assert server.received[0].path == "/api/v1/namespaces/ns/pods/a/status"
    assert server.received[0].json == {"status": {"phase": "Ready"}}


async def test_delete_sends_only_the_options_given(server: Server, client: Client) -> None:
    server.then(ok(), ok())
    await client.delete(typed())
    await client.delete(typed(), 0, "Foreground", uid="u", resource_version="7")
    plain, full = server.received
    assert (plain.method, plain.path) == ("DELETE", "/api/v1/namespaces/ns/pods/a")
    assert plain.json == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert full.json == plain.json | {
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


async def test_delete_tells_of_what_is_not_there_or_has_changed(server: Server, client: Client) -> None:
    server.then(status(404, "NotFound"), status(409, "Conflict"))
    with pytest.raises(NotFoundError):
        await client.delete(typed())
    with pytest.raises(ConflictError):
        await client.delete(typed(), uid="other")


async def test_evict_means_the_pod_that_was_given(server: Server, client: Client) -> None:
    server.then(ok(), ok())
    await client.evict(typed(), grace_period=5)
    await client.evict(Pod, name="b", namespace="x")
    first, second = server.received
    assert (first.method, first.path) == ("POST", "/api/v1/namespaces/ns/pods/a/eviction")
    assert first.json["metadata"] == {"namespace": "ns", "name": "a"}
    assert first.json["deleteOptions"]["preconditions"] == {"uid": "uid-a"}
    assert first.json["deleteOptions"]["gracePeriodSeconds"] == 5
    assert "preconditions" not in second.json["deleteOptions"]


async def test_scale_patches_the_subresource(server: Server, client: Client) -> None:
    server.then(ok({"kind": "Scale"}))
    await client.scale(typed(), 3)
    assert server.received[0].path == "/api/v1/namespaces/ns/pods/a/scale"
    assert server.received[0].json == {"spec": {"replicas": 3}}


async def test_raw_sends_anything(server: Server, client: Client) -> None:
    server.then(ok(b"v"))
    assert await client.raw("get", "/version", params={"a": "b"}) == b"v"
    assert server.received[0].query == {"a": "b"}


async def test_a_views_field_manager_is_its_own(server: Server, client: Client) -> None:
    server.then(ok(pod()), ok(pod()))
    await client.bound(field_manager="op.web").patch(typed(), {})
    await client.patch(typed(), {})
    assert [request.query["fieldManager"] for request in server.received] == ["op.web", "tester"]


# -- the gate and the observers


class Gate:
    def __init__(self, left: float | None) -> None:
        self.left = left

    def __call__(self) -> float | None:
        return self.left


def every_write(client: Client) -> list[Any]:
    return [
        client.create(typed()),
        client.apply(typed()),
        client.patch(typed(), {}),
        client.patch_status(typed(), {}),
        client.delete(typed()),
        client.evict(typed()),
        client.scale(typed(), 1),
        client.raw("POST", "/x"),
    ]


async def test_no_write_is_sent_once_the_lead_may_be_lost(server: Server, transport: Transport) -> None:
    client = Client(transport, gate=Gate(0.0)).bound(field_manager="x")
    for write in every_write(client):
        with pytest.raises(LeaseLostError):
            await write
    with pytest.raises(LeaseLostError):
        client.check_gate()
    assert server.received == []
    server.then(ok(pod()))
    await client.get(Pod, "a")  # reads pass


async def test_a_write_takes_no_longer_than_the_gate_has_left(server: Server, transport: Transport) -> None:
    client = Client(transport, gate=Gate(0.05))
    for write in every_write(client):
        server.then(never)
        with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
            await write


async def test_a_gate_does_not_lengthen_a_limit(server: Server, transport: Transport) -> None:
    server.then(never)
    with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
        await Client(transport, gate=Gate(LONG)).raw("POST", "/x", timeout=0.05)
    assert Client(transport, gate=Gate(None)).check_gate() is None


async def test_observers_see_the_whole_object_of_each_write_before_the_caller(server: Server, client: Client) -> None:
    seen: list[tuple[str, str, str]] = []

    def observe(resource: Resource, data: bytes, field_manager: str) -> None:
        seen.append((resource.plural, json.loads(data)["metadata"]["resourceVersion"], field_manager))

    client.on_write.append(observe)
    view = client.bound(field_manager="view")
    server.then(*(ok(pod(version=str(number))) for number in range(1, 5)), ok({"kind": "Scale"}), ok(), ok())
    await view.create(typed())
    await view.apply(typed(), field_manager="other")
    await view.patch(typed(), {})
    await view.patch_status(typed(), {})
    await view.scale(typed(), 1)
    await view.delete(typed())
    assert seen == [("pods", "1", "view"), ("pods", "2", "other"), ("pods", "3", "view"), ("pods", "4", "view")]


async def test_observers_hear_of_a_write_whose_answer_does_not_fit(server: Server, client: Client) -> None:
    seen: list[bytes] = []
    client.on_write.append(lambda resource, data, manager: seen.append(data))
    server.then(ok(pod(priority="high")))
    with pytest.raises(DecodeError):
        await client.patch(typed(), {})
    assert len(seen) == 1
