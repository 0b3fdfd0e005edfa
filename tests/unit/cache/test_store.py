"""The store: versions go forward, gaps are closed, indexes follow, subscribers are told in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncop
from asyncop.api.errors import ConfigError, DecodeError
from asyncop.api.request import Request
from asyncop.cache.store import Delta, Store
from asyncop.cache.view import StoreView, typed_projection
from asyncop.client.wire import Record


class Spec(asyncop.Struct):
    node: str = ""


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    spec: Spec = Spec()


def record(name: str, version: int, *, uid: str = "u", node: str = "", namespace: str = "ns", **labels: str) -> Record:
    metadata = asyncop.ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=str(version), labels=labels)
    return Record(metadata, (Pod(metadata=metadata, spec=Spec(node=node)),), None)


def unreadable(name: str, version: int) -> Record:
    metadata = asyncop.ObjectMeta(name=name, namespace="ns", uid="u", resource_version=str(version))
    return Record(metadata, (DecodeError("spec.node: not a string"),), None)


def on_node(pod: Pod) -> list[str]:
    return [pod.spec.node] if pod.spec.node else []


class Setup:
    def __init__(self) -> None:
        self.store, self.writer = Store.create()
        self.view: StoreView[Pod] = StoreView(self.store, typed_projection(0), {"node": on_node}, "Pod")
        self.deltas: list[Delta] = []
        self.store.subscribe(self.deltas.append)

    def told(self) -> list[tuple[str, str | None, str | None]]:
        def version(record: Record | None) -> str | None:
            return record and record.metadata.resource_version

        return [(delta.request.name, version(delta.old), version(delta.new)) for delta in self.deltas]


@pytest.fixture
def cache() -> Setup:
    return Setup()


def test_what_was_put_is_read_without_awaiting(cache: Setup) -> None:
    cache.writer.put(record("a", 1, node="n1"))
    pod = cache.view.get("a", "ns")
    assert pod is not None
    assert pod.spec.node == "n1"
    assert cache.view.get("b", "ns") is None
    assert len(cache.view) == 1


def test_an_older_version_never_overwrites_a_newer(cache: Setup) -> None:
    cache.writer.put(record("a", 10, node="new"))
    cache.writer.put(record("a", 9, node="old"))
    assert cache.view.get("a", "ns").spec.node == "new"
    assert cache.told() == [("a", None, "10")]


def test_a_rebirth_under_the_same_name_is_an_end_and_a_beginning(cache: Setup) -> None:
    cache.writer.put(record("a", 10, uid="one"))
    cache.writer.put(record("a", 12, uid="two"))
    assert cache.told() == [("a", None, "10"), ("a", "10", None), ("a", None, "12")]


def test_a_late_deletion_of_a_former_life_changes_nothing(cache: Setup) -> None:
    cache.writer.put(record("a", 12, uid="two"))
    cache.writer.remove(record("a", 11, uid="one").metadata)
    assert cache.view.get("a", "ns") is not None


def test_a_complete_list_takes_out_what_it_did_not_hold_in_its_own_namespace(cache: Setup) -> None:
    for name, namespace in (("a", "ns"), ("b", "ns"), ("c", "other")):
        cache.writer.put(record(name, 1, namespace=namespace))
    cache.writer.retain({Request("ns", "a")}, "ns", "9")
    assert sorted(cache.view.requests()) == [("ns", "a"), ("other", "c")]
    assert cache.told()[-1] == ("b", "1", None)


def test_indexes_follow_every_change(cache: Setup) -> None:
    cache.writer.put(record("a", 1, node="n1"))
    cache.writer.put(record("b", 2, node="n1"))
    cache.writer.put(record("a", 3, node="n2"))
    cache.writer.remove(record("b", 4).metadata)
    assert cache.view.by_index("node", "n1") == []
    assert [pod.metadata.name for pod in cache.view.by_index("node", "n2")] == ["a"]


def test_an_index_declared_late_covers_what_is_already_there(cache: Setup) -> None:
    cache.writer.put(record("a", 1, app="web"))
    late: StoreView[Pod] = StoreView(
        cache.store, typed_projection(0), {"app": lambda pod: [pod.metadata.labels.get("app", "")]}, "Pod"
    )
    assert len(late.by_index("app", "web")) == 1


def test_an_index_that_was_not_declared_says_what_to_declare(cache: Setup) -> None:
    with pytest.raises(ConfigError, match="no index 'zone' here \\(declared: node\\); add it to indexes="):
        cache.view.by_index("zone", "a")


def test_an_unreadable_object_is_known_but_get_raises_and_list_skips(cache: Setup) -> None:
    cache.writer.put(record("good", 1))
    cache.writer.put(unreadable("bad", 2))
    assert len(cache.view) == 2
    assert [pod.metadata.name for pod in cache.view.list()] == ["good"]
    with pytest.raises(DecodeError):
        cache.view.get("bad", "ns")


def test_an_object_that_becomes_unreadable_leaves_the_indexes(cache: Setup) -> None:
    cache.writer.put(record("a", 1, node="n1"))
    cache.writer.put(unreadable("a", 2))
    assert cache.view.by_index("node", "n1") == []


def test_list_takes_a_namespace_and_labels(cache: Setup) -> None:
    cache.writer.put(record("a", 1, app="web"))
    cache.writer.put(record("b", 2, app="db"))
    cache.writer.put(record("c", 3, namespace="other", app="web"))
    assert [pod.metadata.name for pod in cache.view.list("ns", labels={"app": "web"})] == ["a"]
    assert len(cache.view.list(labels="app in (web, db)")) == 3


def test_a_subscriber_that_raises_does_not_keep_the_others_from_hearing(cache: Setup) -> None:
    def broken(delta: Delta) -> None:
        raise RuntimeError("broken")

    heard: list[Delta] = []
    cache.store.subscribe(broken)
    cache.store.subscribe(heard.append)
    cache.writer.put(record("a", 1))
    assert len(heard) == 1


def test_a_writes_answer_is_read_back_at_once_and_is_no_news_when_the_watch_brings_it(cache: Setup) -> None:
    cache.writer.put(record("a", 1, node="old"))
    cache.writer.put_written(record("a", 5, node="new"), "me", None, only_known=False)
    assert cache.view.get("a", "ns").spec.node == "new"
    assert cache.deltas[-1].writer == "me"
    told = len(cache.deltas)
    cache.writer.put(record("a", 5, node="new"))
    assert len(cache.deltas) == told


def test_an_answer_that_the_watch_was_quicker_to_bring_only_tells_whose_write_it_was(cache: Setup) -> None:
    cache.writer.put(record("a", 1))
    cache.writer.put(record("a", 5, node="new"))
    cache.writer.reached("5", None)
    cache.writer.put_written(record("a", 5, node="new"), "me", None, only_known=False)
    assert (cache.deltas[-1].is_echo, cache.deltas[-1].writer) == (True, "me")
    assert cache.view.by_index("node", "new")


def test_an_older_watch_line_never_overwrites_a_writes_answer(cache: Setup) -> None:
    cache.writer.put(record("a", 1))
    cache.writer.put_written(record("a", 5, node="new"), "me", None, only_known=False)
    cache.writer.put(record("a", 3, node="between"))
    assert cache.view.get("a", "ns").spec.node == "new"


def test_a_change_that_a_write_was_made_on_top_of_still_counts(cache: Setup) -> None:
    cache.writer.put(record("a", 1))
    cache.writer.put_written(record("a", 5, node="new"), "me", None, only_known=False)
    cache.writer.put(record("a", 3, node="between"))
    assert cache.deltas[-1].is_forced
    cache.writer.put(record("a", 5, node="new"))
    cache.writer.put(record("a", 7, node="later"))
    assert not cache.deltas[-1].is_forced


def test_a_deletion_that_the_watch_has_seen_wins_over_a_late_answer(cache: Setup) -> None:
    cache.writer.put(record("a", 1))
    cache.writer.remove(record("a", 9).metadata)
    cache.writer.reached("9", None)
    cache.writer.put_written(record("a", 5), "me", None, only_known=False)
    assert cache.view.get("a", "ns") is None


def test_what_was_written_after_a_list_was_made_is_not_missing_from_it(cache: Setup) -> None:
    cache.writer.put_written(record("new", 12), "me", None, only_known=False)
    cache.writer.retain(set(), None, "10")
    assert cache.view.get("new", "ns") is not None
    cache.writer.retain(set(), None, "12")
    assert cache.view.get("new", "ns") is None


def test_where_selectors_cannot_be_judged_only_known_objects_are_replaced(cache: Setup) -> None:
    cache.writer.put_written(record("a", 5), "me", None, only_known=True)
    assert cache.view.get("a", "ns") is None


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["put", "remove"]),
        st.integers(1, 3),  # uid
        st.sampled_from(["n1", "n2", ""]),
    ),
    max_size=40,
)


@settings(deadline=None, derandomize=True)
@given(OPERATIONS)
def test_indexes_always_equal_what_the_objects_say(operations: list[tuple[str, str, int, str]]) -> None:
    cache = Setup()
    for version, (name, verb, uid, node) in enumerate(operations, 1):
        entry = record(name, version, uid=str(uid), node=node)
        if verb == "put":
            cache.writer.put(entry)
        else:
            cache.writer.remove(entry.metadata)
    pods = cache.view.list()
    assert len(cache.view) == len(pods)
    for node in ("n1", "n2"):
        expected = {pod.metadata.name for pod in pods if pod.spec.node == node}
        assert {pod.metadata.name for pod in cache.view.by_index("node", node)} == expected
