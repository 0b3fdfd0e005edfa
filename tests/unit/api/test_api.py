"""The pure values: names, durations, selectors, quantities, resource names, classes."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

import asyncop
from asyncop.api.duration import parse_duration
from asyncop.api.meta import encode_hook
from asyncop.api.names import wire_name
from asyncop.api.resource import Resource, ResourceSelector
from asyncop.api.selectors import label_matcher, label_selector

DEPLOYMENTS = Resource(
    group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True, singular="deployment",
    short_names=("deploy",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("python", "wire"),
    [
        ("node_name", "nodeName"),
        ("pod_ip", "podIP"),
        ("host_ips", "hostIPs"),
        ("ip_family", "ipFamily"),
        ("cluster_cidr", "clusterCIDR"),
        ("external_urls", "externalURLs"),
        ("url_path", "urlPath"),
        ("continue_", "continue"),
        ("uid", "uid"),
        ("external_id", "externalID"),
    ],
)
def test_field_names_follow_the_api_conventions(python: str, wire: str) -> None:
    assert wire_name(python) == wire


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3s", 3),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("90", 90),
        (7, 7),
        ("0", 0),
        ("1.5h", 5400),
        ("2d", 172800),
    ],
)
def test_durations_are_read_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5 m", "m5", "-3s", "3x", "1h-5m", "nan", "inf", True])
def test_what_is_no_duration_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match="write 3s, 5m, 1h30m or seconds"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("128974848", "128974848"),
        ("129e6", "129000000"),
        ("129M", "129000000"),
        ("128974848000m", "128974848"),
        ("123Mi", "128974848"),
        ("1E", "1000000000000000000"),
        ("1e3", "1000"),
        ("0.5", "0.5"),
        ("500m", "0.5"),
        ("100n", "0.0000001"),
    ],
)
def test_quantities_are_exact_and_equal_however_spelled(text: str, amount: str) -> None:
    assert asyncop.Quantity(text) == asyncop.Quantity(amount)


@pytest.mark.parametrize("text", ["1e-7Ti", "", "Mi", "12 Mi", "1K", "abc", "1.2.3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        asyncop.Quantity(text)


@pytest.mark.parametrize("micros", [0, 1, 120000, 999999])
def test_a_micro_time_always_has_six_digits(micros: int) -> None:
    east = dt.timezone(dt.timedelta(hours=5))
    moment = asyncop.MicroTime.of(dt.datetime(2026, 12, 1, 5, 0, 0, micros, tzinfo=east))
    text = msgspec.json.decode(msgspec.json.encode(moment, enc_hook=encode_hook))
    assert text == f"2026-12-01T00:00:00.{micros:06d}Z"


def test_a_naive_micro_time_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        asyncop.MicroTime.of(dt.datetime(2026, 12, 1))


@pytest.mark.parametrize(
    "text",
    [
        "deployments",
        "Deployment",
        "deploy",
        "deployments.apps",
        "deployments.v1.apps",
        "apps/v1/deployments",
        ("apps", "v1", "deployments"),
    ],
)
def test_a_resource_is_named_in_any_of_kopfs_forms(text: str | tuple[str, ...]) -> None:
    assert ResourceSelector.parse(text).matches(DEPLOYMENTS)


@pytest.mark.parametrize("text", ["pods", "deployments.extensions", "apps/v2/deployments", "v1/deployments"])
def test_another_resource_is_not_matched(text: str) -> None:
    assert not ResourceSelector.parse(text).matches(DEPLOYMENTS)


@pytest.mark.parametrize("text", ["", "a/b/c/d", ("", "v1", "")])
def test_what_names_no_resource_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"resource|parts"):
        ResourceSelector.parse(text)


def test_paths_are_those_of_the_api() -> None:
    pods = Resource(version="v1", plural="pods", kind="Pod", namespaced=True)
    assert DEPLOYMENTS.path() == "/apis/apps/v1/deployments"
    assert DEPLOYMENTS.path("ns", "web", "status") == "/apis/apps/v1/namespaces/ns/deployments/web/status"
    assert pods.path("ns") == "/api/v1/namespaces/ns/pods"
    assert pods.path("ns", "a/../b") == "/api/v1/namespaces/ns/pods/a%2F..%2Fb"


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("app=web", {"app": "web"}, True),
        ("app==web,tier!=db", {"app": "web"}, True),
        ("app in (a, b)", {"app": "b"}, True),
        ("app in (a, b)", {"app": "c"}, False),
        ("app notin (a)", {}, True),
        ("app", {"app": ""}, True),
        ("!app", {"app": "x"}, False),
        ("!app,tier", {"tier": "x"}, True),
        ("", {"any": "thing"}, True),
        ("size>3", {"size": "4"}, True),
        ("size>3", {"size": "3"}, False),
        ("size<3", {"size": "-1"}, True),
        ("size<3", {"size": "small"}, False),
        ("size<3", {}, False),
    ],
)
def test_selectors_match_as_the_server_does(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert label_matcher(selector)(labels) is matches


@pytest.mark.parametrize("selector", ["app in a, b", "=x", "a b", "app in (a", ",,", "a=b=c", "a>x"])
def test_what_is_no_selector_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="not a label selector"):
        label_selector(selector)


def test_objects_are_frozen_and_hold_nothing_the_collector_must_walk() -> None:
    class Pod(asyncop.Object, api_version="v1", kind="Pod"):
        pass

    pod = Pod()
    with pytest.raises(AttributeError):
        pod.metadata = asyncop.ObjectMeta()  # type: ignore[misc]
    assert Pod.__struct_config__.gc is False


def test_an_object_class_without_its_resource_says_what_to_write() -> None:
    with pytest.raises(TypeError, match='api_version="v1", kind="Pod"'):

        class Pod(asyncop.Object):
            name: str = ""


def test_every_public_name_can_be_imported() -> None:
    for name in asyncop.__all__:
        assert getattr(asyncop, name) is not None
