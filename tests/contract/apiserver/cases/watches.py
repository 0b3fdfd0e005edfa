"""Watches: from a version or from the objects there are, bookmarks, selectors, what is too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.apiserver.cases import case, config_map, pod

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller

PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@case
def a_watch_tells_what_happened_since_a_version(c: Caller) -> None:
    maps = c.core("configmaps")
    start = c.get(maps).version
    c.post(maps, config_map("a", data={"x": "1"}))
    c.patch(c.core("configmaps", "a"), {"data": {"x": "2"}})
    with c.watch(maps, resourceVersion=start) as watch:
        watch.read(2)
        c.post(maps, config_map("b"))
        c.delete(c.core("configmaps", "a"))
        watch.read(2)


@case
def a_watch_without_version_begins_with_what_is_there(c: Caller) -> None:
    maps = c.core("configmaps")
    c.post(maps, config_map("a"))
    c.post(maps, config_map("b"))
    for version in ({}, {"resourceVersion": "0"}):
        with c.watch(maps, **version) as watch:
            watch.read(2)


@case
def initial_events_end_with_a_bookmark(c: Caller) -> None:
    maps = c.core("configmaps")
    c.post(maps, config_map("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with c.watch(maps, **options) as watch:
        _, bookmark = watch.read(2)
        assert bookmark["type"] == "BOOKMARK"
        c.post(maps, config_map("b"))
        watch.read()
    with c.watch(c.core("pods"), **options) as watch:
        watch.read()
    with c.watch(maps, accept=PARTIAL, **options) as watch:
        watch.read(3)
    with c.watch(maps, sendInitialEvents="true"):
        pass
    with c.watch(maps, sendInitialEvents="false", resourceVersionMatch="NotOlderThan", timeoutSeconds=1):
        pass
    with c.watch(maps, resourceVersionMatch="NotOlderThan", resourceVersion="1"):
        pass


@case
def a_selector_shows_comings_and_goings(c: Caller) -> None:
    maps, path = c.core("configmaps"), c.core("configmaps", "a")
    start = c.get(maps).version
    with c.watch(maps, resourceVersion=start, labelSelector="app=x") as watch:
        c.post(maps, config_map("other"))
        c.post(maps, config_map("a"))
        c.patch(path, {"metadata": {"labels": {"app": "x"}}})
        c.patch(path, {"data": {"x": "1"}})
        c.patch(path, {"metadata": {"labels": {"app": "y"}}, "data": {"x": "2"}})
        c.patch(path, {"metadata": {"labels": {"app": "x"}}})
        c.delete(path)
        watch.read(5)
    with c.watch(maps, resourceVersion=start, fieldSelector="metadata.name=other") as watch:
        watch.read()
    pods = c.core("pods")
    start = c.get(pods).version
    with c.watch(pods, resourceVersion=start, fieldSelector="status.phase=Running") as watch:
        c.post(pods, pod("p"))
        c.patch(c.core("pods", "p", "status"), {"status": {"phase": "Running"}})
        c.patch(c.core("pods", "p", "status"), {"status": {"phase": "Failed"}})
        watch.read(2)


@case
def a_deletion_shows_the_object_as_it_was(c: Caller) -> None:
    maps, path = c.core("configmaps"), c.core("configmaps", "a")
    start = c.get(maps).version
    with c.watch(maps, resourceVersion=start) as watch:
        c.post(maps, config_map("a", finalizers=["example.com/a"]))
        c.delete(path)
        c.patch(path, {"metadata": {"finalizers": None}})
        watch.read(3)
    pods = c.core("pods")
    start = c.get(pods).version
    with c.watch(pods, resourceVersion=start) as watch:
        c.post(pods, pod("p", node="nowhere"))
        c.delete(c.core("pods", "p"))
        c.delete(c.core("pods", "p"), gracePeriodSeconds=0)
        watch.read(3)
        c.post(pods, pod("unbound"))
        c.delete(c.core("pods", "unbound"))
        watch.read(2)


@case
def a_watch_can_be_of_metadata_only(c: Caller) -> None:
    pods = c.core("pods")
    start = c.get(pods).version
    with c.watch(pods, accept=PARTIAL, resourceVersion=start) as watch:
        c.post(pods, pod("a"))
        c.delete(c.core("pods", "a"))
        watch.read(2)


@case
def a_watch_ends_when_its_time_is_over(c: Caller) -> None:
    with c.watch(c.core("configmaps"), timeoutSeconds=1, resourceVersion=c.get(c.core("configmaps")).version) as watch:
        watch.rest()


@case
def dry_runs_are_not_watched(c: Caller) -> None:
    maps = c.core("configmaps")
    start = c.get(maps).version
    with c.watch(maps, resourceVersion=start) as watch:
        c.post(maps, config_map("dry"), dryRun="All")
        c.post(maps, config_map("a"))
        c.patch(c.core("configmaps", "a"), {"data": {"x": "1"}}, dryRun="All")
        c.delete(c.core("configmaps", "a"), dryRun="All")
        c.patch(c.core("configmaps", "a"), {"data": {"x": "2"}})
        watch.read(2)
    c.post(maps, config_map("b"), dryRun="Some")


@case
def a_watch_can_be_asked_for_wrongly(c: Caller) -> None:
    maps = c.core("configmaps")
    for options in (
        {"resourceVersion": "abc"},
        {"resourceVersion": "-1"},
        {"resourceVersion": "999999999", "timeoutSeconds": 1},
        {"fieldSelector": "spec.unknown=x"},
        {"resourceVersionMatch": "Exact", "sendInitialEvents": "true"},
    ):
        with c.watch(maps, **options) as watch:
            if watch.status == 200:
                watch.rest()
    with c.watch(c.core("nothings")):
        pass


@case
def initial_events_heed_selectors_and_versions(c: Caller) -> None:
    maps = c.core("configmaps")
    for name, labels in (("b", {"app": "x"}), ("a", {"app": "y"}), ("c", {"app": "x"})):
        c.post(maps, config_map(name, labels=labels), quiet=True)
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    version = c.get(maps).version
    for more in (
        {"labelSelector": "app=x"},
        {"resourceVersion": version, "labelSelector": "app=x"},
        {"resourceVersion": "0", "labelSelector": "app=x"},
    ):
        with c.watch(maps, **options, **more) as watch:
            watch.read(3)
    with c.watch(maps, **options, fieldSelector="metadata.name=c") as watch:
        watch.read(2)
        c.delete(c.core("configmaps", "b"))
        c.delete(c.core("configmaps", "c"))
        watch.read(1)


@case
def a_watch_sees_every_namespace(c: Caller) -> None:
    start = c.get(c.core("configmaps")).version
    with c.watch("/api/v1/configmaps", resourceVersion=start, labelSelector=f"case={c.namespace}") as watch:
        c.post(c.core("configmaps"), config_map(labels={"case": c.namespace}))
        c.patch(c.core("configmaps", "a"), {"metadata": {"labels": {"case": None}}})
        watch.read(2)
