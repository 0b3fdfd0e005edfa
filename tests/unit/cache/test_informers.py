"""Which readers share a watch, and which stores hear of a write."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

import asyncop
from asyncop.api.resource import Resource
from asyncop.cache import Informers, Scope

PODS = Resource(version="v1", plural="pods", kind="Pod", namespaced=True)
DISCOVERED = Resource(version="v1", plural="pods", kind="Pod", namespaced=True, short_names=("po",), verbs=("get",))


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    pass


def informers() -> tuple[Informers, Any]:
    client: Any = SimpleNamespace(on_write=[])
    return Informers(client), client


class Phased(asyncop.Object, api_version="v1", kind="Pod"):
    phase: str = ""


def answer(name: str, version: int = 7, **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}
    return json.dumps({"metadata": metadata, **fields}).encode()


def test_a_class_that_says_its_plural_shares_the_watch_of_a_discovered_kind() -> None:
    shared, _ = informers()
    assert shared.get(Scope(PODS, None)) is shared.get(Scope(DISCOVERED, None))
    assert len(list(shared)) == 1


def test_a_write_enters_every_store_also_after_a_late_reader_has_got_one_of_its_own() -> None:
    shared, client = informers()
    stores = []
    for _ in range(2):
        informer = shared.get(Scope(PODS, None))
        stores.append(informer.view(Pod, {}))
        informer.start()
    [observe] = client.on_write
    observe(DISCOVERED, answer("web"), "somebody")
    assert [store.get("web", "ns") is not None for store in stores] == [True, True]
    assert len(list(shared)) == 2


def test_an_unreadable_object_is_logged_when_it_becomes_so_and_not_at_every_change() -> None:
    shared, client = informers()
    informer = shared.get(Scope(PODS, None))
    informer.view(Phased, {})
    informer.start()
    [observe] = client.on_write
    with capture_logs() as logs:
        for version, phase in enumerate([7, 8, "fine", 9], start=1):
            observe(PODS, answer("odd", version, phase=phase), "somebody")
    assert [line["name"] for line in logs if line["log_level"] == "error"] == ["odd", "odd"]
