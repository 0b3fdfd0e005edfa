"""Which readers share a watch, and which stores hear of a write."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

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


def answer(name: str) -> bytes:
    return json.dumps({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7"}}).encode()


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
