"""What a name means, in both forms that servers answer discovery in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from msgspec.structs import asdict

import asyncop
from asyncop.api.errors import ConfigError, DecodeError, NotFoundError
from asyncop.api.resource import Resource, ResourceSelector
from asyncop.client.discovery import Discovery
from tests.unit.client.server import Server, ok, status

if TYPE_CHECKING:
    from asyncop.client import Transport

pytestmark = pytest.mark.asyncio

# (group, version, plural, singular, kind, namespaced, short names, subresources), preferred versions first
SERVED: list[tuple[str, str, str, str, str, bool, list[str], list[str]]] = [
    ("", "v1", "pods", "pod", "Pod", True, ["po"], ["status", "eviction"]),
    ("", "v1", "nodes", "node", "Node", False, ["no"], ["status"]),
    ("", "v1", "events", "event", "Event", True, ["ev"], []),
    ("apps", "v1", "deployments", "deployment", "Deployment", True, ["deploy"], ["status", "scale"]),
    ("events.k8s.io", "v1", "events", "event", "Event", True, ["ev"], []),
    ("autoscaling", "v2", "scalers", "scaler", "Scaler", True, ["sc"], []),
    ("autoscaling", "v1", "scalers", "scaler", "Scaler", True, ["sc"], []),
    ("autoscaling", "v1", "olds", "old", "Old", True, [], []),
    ("a.example", "v1", "backups", "backup", "Backup", True, [], []),
    ("b.example", "v1beta1", "backups", "backup", "Backup", True, [], []),
    ("b.example", "v1beta1", "others", "other", "Other", True, ["backups"], []),
    ("c.example", "v1", "store", "", "Store", True, ["others"], []),
]


def group_versions() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, version, *_ in SERVED:
        if version not in groups.setdefault(group, []):
            groups[group].append(version)
    return groups


def aggregated(groups: dict[str, list[str]]) -> dict[str, Any]:
    items = []
    for group, versions in groups.items():
        served = [
            {
                "version": version,
                "resources": [
                    {
                        "resource": plural,
                        "responseKind": {"group": "", "version": "", "kind": kind},
                        "scope": "Namespaced" if namespaced else "Cluster",
                        "singularResource": singular,
                        "shortNames": short,
                        "verbs": ["get", "list"],
                        "subresources": [{"subresource": each, "verbs": ["get"]} for each in subs],
                    }
                    for g, v, plural, singular, kind, namespaced, short, subs in SERVED
                    if (g, v) == (group, version)
                ],
            }
            for version in versions
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": served})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def listed(group: str, version: str) -> dict[str, Any]:
    resources = []
    for g, v, plural, singular, kind, namespaced, short, subs in SERVED:
        if (g, v) == (group, version):
            entry = {"singularName": singular, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"]}
            resources += [{"name": plural, "shortNames": short, **entry}]
            resources += [{"name": f"{plural}/{sub}", **entry} for sub in subs]
    return {"kind": "APIResourceList", "groupVersion": f"{group}/{version}", "resources": resources}


def serve_versions(server: Server) -> None:
    for group, versions in group_versions().items():
        for version in versions:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            server.routes[path] = ok(listed(group, version))
    server.routes["/apis/apps/v9"] = status(404, "NotFound")


def serve_aggregated(server: Server) -> None:
    groups = group_versions()
    core = {"": groups.pop("")}
    server.routes |= {"/api": ok(aggregated(core)), "/apis": ok(aggregated(groups))}
    serve_versions(server)


def serve_plain(server: Server) -> None:
    groups = group_versions()
    server.routes["/api"] = ok({"kind": "APIVersions", "versions": groups.pop("")})
    server.routes["/apis"] = ok(
        {
            "kind": "APIGroupList",
            "groups": [
                {
                    "name": group,
                    "versions": [{"groupVersion": f"{group}/{v}", "version": v} for v in sorted(versions)],
                    "preferredVersion": {"groupVersion": f"{group}/{versions[0]}", "version": versions[0]},
                }
                for group, versions in groups.items()
            ],
        }
    )
    serve_versions(server)


@pytest.fixture(params=[serve_aggregated, serve_plain], ids=["aggregated", "plain"])
def served(request: pytest.FixtureRequest, server: Server) -> Server:
    request.param(server)
    return server


@pytest_asyncio.fixture
async def discovery(transport: Transport) -> Discovery:
    return Discovery(transport)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pods", "v1 pods"),
        ("Pod", "v1 pods"),
        ("po", "v1 pods"),
        ("PODS", "v1 pods"),
        (("", "v1", "pods"), "v1 pods"),
        ("v1/pods", "v1 pods"),
        ("events", "v1 events"),  # the core group's, though another has it too
        ("events.events.k8s.io", "events.k8s.io/v1 events"),
        ("deployment", "apps/v1 deployments"),
        ("deployments.apps", "apps/v1 deployments"),
        ("deployments.v1.apps", "apps/v1 deployments"),
        ("apps/v1/deployments", "apps/v1 deployments"),
        ("apps/deployments", "apps/v1 deployments"),
        ("scalers", "autoscaling/v2 scalers"),  # the preferred version
        ("autoscaling/v1/scalers", "autoscaling/v1 scalers"),
        ("olds", "autoscaling/v1 olds"),  # not in the preferred version
        ("backups.b.example", "b.example/v1beta1 backups"),
        ("others", "b.example/v1beta1 others"),  # its plural goes before somebody's short name
        (ResourceSelector("store", "c.example"), "c.example/v1 store"),
    ],
)
@pytest.mark.usefixtures("served")
async def test_a_name_means_what_people_expect(discovery: Discovery, name: Any, meant: str) -> None:
    resource = await discovery.resolve(name)
    assert f"{resource.api_version} {resource.plural}" == meant


@pytest.mark.usefixtures("served")
async def test_a_resource_is_described_in_full(discovery: Discovery) -> None:
    assert asdict(await discovery.resolve("deploy")) == asdict(
        Resource(
            group="apps",
            version="v1",
            plural="deployments",
            kind="Deployment",
            namespaced=True,
            singular="deployment",
            short_names=("deploy",),
            verbs=("get", "list"),
            subresources=("status", "scale"),
        )
    )
    assert not (await discovery.resolve("nodes")).namespaced


@pytest.mark.usefixtures("served")
async def test_a_name_of_several_groups_is_refused_with_the_choices(discovery: Discovery) -> None:
    with pytest.raises(ConfigError, match=r"'backups' may be any of backups\.a\.example, backups\.b\.example"):
        await discovery.resolve("backups")


@pytest.mark.parametrize("name", ["nope", "nope.apps", "apps/v1/nope", "apps/v9/deployments"])
@pytest.mark.usefixtures("served")
async def test_a_name_that_nobody_has_is_not_found(discovery: Discovery, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"the server has no resource '{name}'; is its CRD installed"):
        await discovery.resolve(name)


@pytest.mark.parametrize("name", ["", "a/b/c/d", (), ("a", 1)])
async def test_text_that_names_no_resource_is_a_config_error(discovery: Discovery, name: Any) -> None:
    with pytest.raises(ConfigError, match="names no resource"):
        await discovery.resolve(name)


async def test_the_whole_list_is_asked_for_once(server: Server, discovery: Discovery) -> None:
    serve_aggregated(server)
    await asyncio.gather(*(discovery.resolve(name) for name in ("pods", "deploy", "nodes", "pods")))
    assert [request.path for request in server.received] == ["/api", "/apis"]
    assert "as=APIGroupDiscoveryList" in server.received[0].headers["Accept"]


async def test_a_group_whose_own_server_is_down_does_not_hide_the_others(server: Server, discovery: Discovery) -> None:
    serve_plain(server)
    server.routes["/apis/a.example/v1"] = status(403)
    assert (await discovery.resolve("deploy")).group == "apps"


class Backup(asyncop.Object, api_version="a.example/v1", kind="Backup"):
    pass


class Known(asyncop.Object, api_version="a.example/v1", kind="Known", plural="knowns", namespaced=False):
    pass


async def test_a_class_costs_one_request_for_its_group_version(server: Server, discovery: Discovery) -> None:
    serve_versions(server)
    resource = await discovery.resolve(Backup)
    assert (resource.plural, resource.namespaced) == ("backups", True)
    assert await discovery.resolve(Backup) is resource
    assert await discovery.resolve("a.example/v1/backups") is resource
    assert [request.path for request in server.received] == ["/apis/a.example/v1"]


async def test_a_class_that_says_all_costs_none(server: Server, discovery: Discovery) -> None:
    resource = await discovery.resolve(Known)
    assert (resource.path(name="x"), resource.namespaced) == ("/apis/a.example/v1/knowns/x", False)
    assert server.received == []


async def test_a_kind_whose_crd_comes_later_is_found_then(server: Server, discovery: Discovery) -> None:
    server.routes["/apis/a.example/v1"] = status(404)
    for _ in range(2):
        with pytest.raises(NotFoundError, match=r"no kind Backup in a\.example/v1; is its CRD installed"):
            await discovery.resolve(Backup)
    serve_versions(server)
    assert (await discovery.resolve(Backup)).plural == "backups"
    assert len(server.received) == 3


async def test_a_name_whose_crd_comes_later_is_found_then(server: Server, discovery: Discovery) -> None:
    server.routes |= {"/api": ok(aggregated({})), "/apis": ok(aggregated({}))}
    with pytest.raises(NotFoundError):
        await discovery.resolve("pods")
    serve_aggregated(server)
    assert (await discovery.resolve("pods")).kind == "Pod"


async def test_forgetting_asks_anew(server: Server, discovery: Discovery) -> None:
    serve_aggregated(server)
    await discovery.resolve("pods")
    discovery.forget()
    await discovery.resolve("pods")
    assert [request.path for request in server.received] == ["/api", "/apis"] * 2


async def test_rubbish_is_a_decode_error(server: Server, discovery: Discovery) -> None:
    server.routes["/api"] = ok(b"<html>")
    with pytest.raises(DecodeError, match="list of resources can't be read"):
        await discovery.resolve("pods")
