"""The client against a real kube-apiserver: what its verbs, selectors and errors mean there, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvloop

import asyncop
from asyncop.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
)
from asyncop.client import Client, Connection, Transport, connect, load_connection

if TYPE_CHECKING:
    from asyncop.api.resource import Resource
    from tests.testbed.cluster import Cluster

LIMIT = 15.0
"""For what the server does a little later by itself."""


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class DeploymentSpec(asyncop.Struct):
    replicas: int = 1


class Deployment(asyncop.Object, api_version="apps/v1", kind="Deployment"):
    spec: DeploymentSpec = DeploymentSpec()


class PodStatus(asyncop.Struct):
    phase: str = ""
    reason: str = ""


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    status: PodStatus = PodStatus()


Body = Callable[[Client, str], Awaitable[None]]


def on_both_loops(body: Body) -> Callable[..., None]:
    """A test whose client is made, used and closed on asyncio's loop, then on uvloop's."""

    async def connected(kubeconfig: str, namespace: str) -> None:
        async with connect(kubeconfig, user_agent="contract-test", field_manager="tester") as client:
            await body(client, namespace)

    def test(factory: Callable[[], asyncio.AbstractEventLoop], control_plane: Cluster, namespace: str) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(connected(str(control_plane.kubeconfig), namespace))

    test.__doc__ = inspect.getdoc(body)
    return pytest.mark.parametrize(
        "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
    )(test)


def config_map(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=asyncop.ObjectMeta(name=name, namespace=namespace), data=data)


def pod(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "nowhere.invalid/c"}]},
    }


@on_both_loops
async def test_an_object_lives_through_all_verbs(client: Client, namespace: str) -> None:
    created = await client.create(config_map("a", namespace, x="1", y="2"))
    assert created.metadata.uid
    assert created.metadata.creation_timestamp is not None

    patched = await client.patch(created, {"data": {"x": None, "z": "3"}})
    assert patched.data == {"y": "2", "z": "3"}
    assert patched.metadata.resource_version != created.metadata.resource_version
    assert await client.get(created) == patched == await client.get(ConfigMap, "a", namespace)

    untyped = await client.get("configmaps", "a", namespace)
    assert untyped["data"] == {"y": "2", "z": "3"}
    assert untyped.metadata == patched.metadata
    relabelled = await client.patch(untyped, {"metadata": {"labels": {"seen": "yes"}}})
    assert relabelled.metadata.labels == {"seen": "yes"}

    await client.delete(created)
    with pytest.raises(NotFoundError, match='configmaps "a" not found'):
        await client.get(created)
    with pytest.raises(NotFoundError):
        await client.delete(created)


@on_both_loops
async def test_a_name_is_taken_once_and_can_be_left_to_the_server(client: Client, namespace: str) -> None:
    await client.create(config_map("a", namespace))
    with pytest.raises(AlreadyExistsError) as caught:
        await client.create(config_map("a", namespace))
    assert caught.value.status == 409
    made = await client.create({"metadata": {"generateName": "b-", "namespace": namespace}}, ConfigMap)
    assert made.metadata.name.startswith("b-")


@on_both_loops
async def test_what_was_read_can_be_created_again_elsewhere(client: Client, namespace: str) -> None:
    first = await client.create(config_map("a", namespace, x="1"))
    copied = dict(await client.get("v1/configmaps", "a", namespace))
    copied["metadata"] = copied["metadata"] | {"name": "b"}
    second = await client.create(copied)
    assert second["data"] == {"x": "1"}
    assert second.metadata.uid != first.metadata.uid


@on_both_loops
async def test_preconditions_protect_from_acting_on_another_object(client: Client, namespace: str) -> None:
    old = await client.create(config_map("a", namespace))
    new = await client.patch(old, {"data": {"x": "1"}})
    with pytest.raises(ConflictError):
        await client.patch(old, {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": {"x": "2"}})
    with pytest.raises(ConflictError):
        await client.delete(old, resource_version=old.metadata.resource_version)
    with pytest.raises(ConflictError):
        await client.delete(old, uid="another")
    await client.delete(new, uid=new.metadata.uid, resource_version=new.metadata.resource_version)


@on_both_loops
async def test_a_failed_test_of_a_json_patch_is_an_invalid_error(client: Client, namespace: str) -> None:
    obj = await client.create(config_map("a", namespace, x="1"))
    with pytest.raises(InvalidError):
        await client.patch(obj, [{"op": "test", "path": "/data/x", "value": "2"}], type="json")
    patched = await client.patch(
        obj,
        [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}],
        type="json",
    )
    assert patched.data == {"x": "2"}


@on_both_loops
async def test_apply_owns_its_fields_and_only_those(client: Client, namespace: str) -> None:
    await client.apply(config_map("a", namespace, x="1", y="1"))
    other = client.bound(field_manager="other")
    with pytest.raises(ConflictError, match="tester"):
        await other.apply(config_map("a", namespace, x="2"), force=False)
    assert (await other.apply(config_map("a", namespace, x="2"))).data == {"x": "2", "y": "1"}
    # x belongs to the other by now, so that leaving it out here does not remove it; y goes, z comes
    assert (await client.apply(config_map("a", namespace, z="1"))).data == {"x": "2", "z": "1"}


@on_both_loops
async def test_an_apply_that_changes_nothing_writes_nothing(client: Client, namespace: str) -> None:
    first = await client.apply(config_map("a", namespace, x="1"))
    assert (await client.apply(config_map("a", namespace, x="1"))).metadata == first.metadata


@on_both_loops
async def test_status_is_written_apart_from_the_rest(client: Client, namespace: str) -> None:
    await client.create(pod("a", namespace))
    written = await client.patch_status(Pod, {"phase": "Failed", "reason": "Test"}, name="a", namespace=namespace)
    assert (written.status.phase, written.status.reason) == ("Failed", "Test")
    ignored = await client.patch(written, {"status": {"reason": "Ignored"}})
    assert ignored.status.reason == "Test"


@on_both_loops
async def test_scale_sets_replicas(client: Client, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", namespace)["spec"]}
    body = {
        "metadata": {"name": "d", "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    deployment = await client.create(body, Deployment)
    await client.scale(deployment, 5)
    assert (await client.get(deployment)).spec.replicas == 5


@on_both_loops
async def test_evict_deletes_a_pod_unless_a_budget_forbids_it(client: Client, namespace: str) -> None:
    free = await client.create(pod("free", namespace))
    guarded = await client.create(pod("guarded", namespace, app="db"))
    await client.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        }
    )
    await client.evict(free)
    with pytest.raises(NotFoundError):
        await client.get(free)
    started = asyncio.get_running_loop().time()
    # no controller runs here that would fill the budget's status, so a Pending Pod may go: make it count
    await client.patch_status(guarded, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    with pytest.raises(TooManyRequestsError) as caught:
        await client.evict(guarded)
    assert "DisruptionBudget" in caught.value.causes
    assert asyncio.get_running_loop().time() - started < 10  # the server asks for that long a pause between tries


@on_both_loops
async def test_a_grace_period_of_zero_takes_a_pod_off_at_once(client: Client, namespace: str) -> None:
    await client.raw(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        body=msgspec.json.encode(pod("a", namespace) | {"spec": pod("a", namespace)["spec"] | {"nodeName": "n"}}),
    )
    await client.delete(Pod, name="a", namespace=namespace)
    terminating = await client.get(Pod, "a", namespace)  # there is no kubelet that would confirm
    assert terminating.metadata.deletion_timestamp is not None
    await client.delete(terminating, grace_period=0, uid=terminating.metadata.uid)
    with pytest.raises(NotFoundError):
        await client.get(terminating)


@on_both_loops
async def test_list_reads_all_pages_and_keeps_to_selectors(client: Client, namespace: str) -> None:
    count = 510
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            metadata = asyncop.ObjectMeta(name=f"c{number:03}", namespace=namespace, labels={"odd": str(number % 2)})
            group.create_task(client.create(ConfigMap(metadata=metadata)))
    found = await client.list(ConfigMap, namespace)
    assert [each.metadata.name for each in found] == [f"c{number:03}" for number in range(count)]
    assert len(await client.list("cm", namespace, labels="odd in (1)")) == count // 2
    (one,) = await client.list("configmaps", namespace, fields={"metadata.name": "c007"})
    assert (one["kind"], one["apiVersion"], one.metadata.labels) == ("ConfigMap", "v1", {"odd": "1"})


@on_both_loops
async def test_watch_tells_of_what_is_there_and_what_happens(client: Client, namespace: str) -> None:
    first = await client.create(config_map("a", namespace))

    async def change() -> None:
        changed = await client.patch(first, {"data": {"x": "1"}})
        await client.delete(changed)

    seen: list[tuple[str, str, dict[str, str]]] = []
    async with asyncio.timeout(LIMIT), contextlib.aclosing(client.watch(ConfigMap, namespace)) as changes:
        async for kind, obj in changes:
            if not seen:
                await change()
            seen.append((kind, obj.metadata.name, obj.data))
            if kind == "DELETED":
                break
    assert seen == [("ADDED", "a", {}), ("MODIFIED", "a", {"x": "1"}), ("DELETED", "a", {"x": "1"})]


@on_both_loops
async def test_a_list_of_metadata_alone_is_made_by_the_server(client: Client, namespace: str) -> None:
    await client.create(config_map("a", namespace, x="1"))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    resource = await client.resolve(ConfigMap)
    answer = msgspec.json.decode(await client.list_page(resource, namespace, {"limit": "1"}, accept))
    assert answer["kind"] == "PartialObjectMetadataList"
    assert "data" not in answer["items"][0]


@on_both_loops
async def test_names_of_resources_are_understood(client: Client, namespace: str) -> None:
    for name, path in {
        "deploy": f"/apis/apps/v1/namespaces/{namespace}/deployments",
        "Pod": f"/api/v1/namespaces/{namespace}/pods",
        "events": f"/api/v1/namespaces/{namespace}/events",
        "events.events.k8s.io": f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
        "coordination.k8s.io/v1/leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        "nodes": "/api/v1/nodes",
        "hpa": f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
    }.items():
        assert (await client.resolve(name)).path(namespace) == path
    deployments = await client.resolve("deployments")
    assert {"status", "scale"} <= set(deployments.subresources)
    assert await client.resolve(Deployment) == await client.resolve("apps/v1/deployments")
    with pytest.raises(NotFoundError, match="is its CRD installed"):
        await client.resolve("nopes")


async def resolved(client: Client, name: str) -> Resource | None:
    try:
        return await client.resolve(name)
    except NotFoundError:
        return None


@on_both_loops
async def test_a_kind_is_found_once_its_crd_is_there(client: Client, namespace: str) -> None:
    plural, group = f"things{namespace.replace('-', '')}", "contract.example"
    with pytest.raises(NotFoundError):
        await client.resolve(f"{plural}.{group}")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": plural.capitalize(), "singular": plural[:-1], "shortNames": []}
    crd = await client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    try:
        async with asyncio.timeout(LIMIT):
            while (resource := await resolved(client, f"{plural}.{group}")) is None:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)
        assert (resource.kind, resource.namespaced) == (plural.capitalize(), True)
    finally:
        await client.delete(crd)


@on_both_loops
async def test_a_bad_object_is_invalid_and_says_why(client: Client, namespace: str) -> None:
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        await client.create(config_map("Not_A_Name", namespace))


def as_somebody_else(connection: Connection, **api_key: str) -> Connection:
    """The same server without our certificate."""
    from kubernetes_asyncio.client import Configuration

    configuration = Configuration()
    configuration.ssl_ca_cert = connection.configuration.ssl_ca_cert
    configuration.api_key.update(api_key)
    return dataclasses.replace(connection, configuration=configuration, sign_in=None)


@on_both_loops
async def test_strangers_are_unauthorized_and_the_powerless_forbidden(client: Client, namespace: str) -> None:
    for api_key, error in (({"BearerToken": "Bearer wrong"}, UnauthorizedError), ({}, ForbiddenError)):
        connection = as_somebody_else(client.transport.connection, **api_key)
        stranger = Transport(connection, user_agent="stranger")
        try:
            with pytest.raises(error):
                await Client(stranger).list(ConfigMap, namespace)
        finally:
            await stranger.aclose()


@on_both_loops
async def test_impersonation_loses_our_rights(client: Client, namespace: str) -> None:
    headers = (("Impersonate-User", "nobody"), ("Impersonate-Group", "nobodies"))
    transport = Transport(dataclasses.replace(client.transport.connection, headers=headers), user_agent="masked")
    try:
        with pytest.raises(ForbiddenError, match='User "nobody" cannot list'):
            await Client(transport).raw("GET", f"/api/v1/namespaces/{namespace}/pods")
    finally:
        await transport.aclose()


@on_both_loops
async def test_a_server_of_another_authority_is_not_trusted(client: Client, namespace: str) -> None:
    connection = dataclasses.replace(as_somebody_else(client.transport.connection), authority=b"")
    transport = Transport(connection, user_agent="careful")
    try:
        with pytest.raises(TransportError, match="certificate can't be trusted"):
            await transport.request("GET", "/version")
    finally:
        await transport.aclose()


@on_both_loops
async def test_a_call_and_a_watch_can_be_cancelled_at_any_moment(client: Client, namespace: str) -> None:
    """Leaves no connection or task behind: warnings are errors here."""

    async def watch() -> None:
        async for _ in client.watch("v1/pods", namespace):
            pass

    for pause in (0.0, 0.001, 0.003, 0.01, 0.03):
        calls = [asyncio.create_task(client.list("v1/pods", namespace)) for _ in range(5)]
        tasks: list[asyncio.Task[Any]] = [*calls, *(asyncio.create_task(watch()) for _ in range(5))]
        await asyncio.sleep(pause)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, (list, asyncio.CancelledError))
    assert await client.list("v1/pods", namespace) == []


def test_a_transport_says_where_it_got_its_server_from(control_plane: Cluster) -> None:
    connection = asyncio.run(load_connection(str(control_plane.kubeconfig)))
    assert connection.source == f"kubeconfig {control_plane.kubeconfig}, context 'testbed'"
    assert connection.namespace == "default"
