"""Bytes to records: one pass, one bad object, one line of any length."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest

import asyncop
from asyncop.api.errors import DecodeError, GoneError, TooManyRequestsError
from asyncop.client.wire import Codec, LineSplitter, decode_object, decode_status


class Spec(asyncop.Struct):
    node_name: str | None = None
    replicas: Annotated[int, msgspec.Meta(ge=1)] = 1
    pod_ip: str = ""


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    spec: Spec = Spec()


class Meta(asyncop.Object, api_version="v1", kind="Pod"):
    pass


def pod(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": spec}


def page(*items: dict[str, Any], **metadata: str) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "9", **metadata}, "items": list(items)}).encode()


def line(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


TYPED = Codec((Pod,), keep_raw=False)
UNTYPED = Codec((), keep_raw=True)
BOTH = Codec((Pod, Meta), keep_raw=True)


def test_a_page_is_decoded_into_the_declared_fields_only() -> None:
    result = TYPED.decode_page(page(pod("a", nodeName="n1", unknown=[1]), **{"continue": "token"}))
    [record] = result.records
    assert record.views[0] == Pod(metadata=record.metadata, spec=Spec(node_name="n1"))
    assert record.raw is None
    assert (result.resource_version, result.continue_token) == ("9", "token")


@pytest.mark.parametrize("codec", [TYPED, UNTYPED, BOTH], ids=["typed", "untyped", "both"])
def test_a_list_whose_items_are_null_is_empty(codec: Codec) -> None:
    assert codec.decode_page(b'{"metadata":{"resourceVersion":"1"},"items":null}').records == []


@pytest.mark.parametrize("codec", [TYPED, BOTH], ids=["one pass", "piecewise"])
def test_one_bad_object_costs_one_object(codec: Codec) -> None:
    records = codec.decode_page(page(pod("a"), pod("bad", nodeName=5), pod("c"))).records
    assert [record.metadata.name for record in records] == ["a", "bad", "c"]
    assert [isinstance(record.views[0], DecodeError) for record in records] == [False, True, False]
    assert "spec.nodeName" in str(records[1].views[0])


def nested(levels: int) -> bytes:
    """An object with a list in a list in a list …, as a custom resource may hold one."""
    return json.dumps(pod("deep")).encode()[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize("levels", [10_000, 100_000])  # what is too deep depends on the Python
@pytest.mark.parametrize("codec", [TYPED, UNTYPED, BOTH], ids=["typed", "untyped", "both"])
def test_an_object_nested_too_deep_for_a_decoder_costs_one_object(codec: Codec, levels: int) -> None:
    data = page(pod("a"), pod("b")).replace(
        b', {"metadata": {"name": "b"', b", " + nested(levels) + b', {"metadata": {"name": "b"'
    )

    records = codec.decode_page(data).records
    event = codec.decode_line(b'{"type":"MODIFIED","object":' + nested(levels) + b"}")
    written = codec.decode_item(nested(levels))

    assert [record.metadata.name for record in records] == ["a", "deep", "b"]
    for good in (records[0], records[2]):
        assert not any(isinstance(view, DecodeError) for view in good.views)
    for bad in (records[1], event.record, written):
        assert bad.metadata.name == "deep"
        assert bad.raw is None
        assert all(isinstance(view, DecodeError) for view in bad.views)


def test_an_object_nested_too_deep_is_a_decode_error_by_itself() -> None:
    with pytest.raises(DecodeError):
        decode_object(Pod, nested(10_000))


@pytest.mark.parametrize("codec", [TYPED, UNTYPED, BOTH], ids=["typed", "untyped", "both"])
def test_a_null_in_the_metadata_counts_as_absent(codec: Codec) -> None:
    odd = pod("b")
    odd["metadata"] |= {"labels": None, "annotations": None, "finalizers": None, "managedFields": [{"manager": "m"}]}

    records = codec.decode_page(page(pod("a"), odd)).records

    assert [record.metadata.name for record in records] == ["a", "b"]
    assert records[1].metadata.labels == {}
    assert not any(isinstance(view, DecodeError) for view in records[1].views)


def test_a_null_counts_as_absent() -> None:
    event = TYPED.decode_line(line("ADDED", {**pod("a"), "spec": None}))
    assert event.record.views[0].spec == Spec()
    event = TYPED.decode_line(line("ADDED", pod("a", replicas=None)))
    assert event.record.views[0].spec.replicas == 1


def test_bounds_are_for_the_schema_and_never_fail_a_decode() -> None:
    assert decode_object(Pod, json.dumps(pod("a", replicas=0)).encode()).spec.replicas == 0


def test_names_on_the_wire_have_kubernetes_initialisms() -> None:
    assert decode_object(Pod, json.dumps(pod("a", podIP="10.0.0.1")).encode()).spec.pod_ip == "10.0.0.1"


def test_a_bookmark_is_nearly_empty_and_only_moves_the_version() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "12"}, "spec": {"nodeName": None, "replicas": ""}}
    for codec in (TYPED, UNTYPED, BOTH):
        event = codec.decode_line(line("BOOKMARK", bookmark))
        assert (event.type, event.record.metadata.resource_version) == ("BOOKMARK", "12")


@pytest.mark.parametrize("codec", [TYPED, UNTYPED, BOTH], ids=["typed", "untyped", "both"])
def test_an_error_line_is_raised_as_the_error_it_carries(codec: Codec) -> None:
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410, "message": "old"}
    with pytest.raises(GoneError, match="old"):
        codec.decode_line(line("ERROR", status))


def test_a_line_that_is_no_event_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        TYPED.decode_line(b"<html>")


def test_raw_bytes_are_kept_without_managed_fields_and_without_their_page() -> None:
    obj = pod("a")
    obj["metadata"]["managedFields"] = [{"manager": 'tricky ,"managedFields":[]', "fieldsV1": {"f:spec": {}}}]
    text = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [obj]}, separators=(",", ":")).encode()
    [record] = UNTYPED.decode_page(text).records
    assert type(record.raw) is bytes
    assert json.loads(record.raw) == pod("a")


def test_equal_labels_are_one_dict_and_last_applied_is_dropped() -> None:
    first, second = pod("a"), pod("b")
    first["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "x": "1"}
    records = TYPED.decode_page(page(first, second)).records
    assert records[0].metadata.labels is records[1].metadata.labels
    assert records[0].metadata.annotations == {"x": "1"}


def test_lines_are_cut_whatever_their_length_and_wherever_chunks_end() -> None:
    lines = [b"a" * 3_000_000, b"b", b"c" * 10]
    stream = b"\n".join(lines) + b"\n"
    for size in (1, 7, 65536, len(stream)):
        data = stream[-40:] if size == 1 else stream
        splitter = LineSplitter()
        found = [found for at in range(0, len(data), size) for found in splitter.feed(data[at : at + size])]
        assert found == [part for part in data.split(b"\n") if part]


def test_an_unfinished_line_is_no_line() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"type":') == []
    assert splitter.feed(b'"ADDED"}') == []
    assert splitter.feed(b"\n") == [b'{"type":"ADDED"}']


def test_a_status_tells_how_long_to_wait_in_its_details() -> None:
    body = {"code": 429, "reason": "TooManyRequests", "message": "slow down", "details": {"retryAfterSeconds": 2}}
    error = decode_status(json.dumps(body).encode())
    assert isinstance(error, TooManyRequestsError)
    assert error.retry_after == 2


def test_text_that_is_no_status_is_still_an_error_with_its_http_status() -> None:
    error = decode_status(b"upstream connect error", 503)
    assert (error.status, error.message) == (503, "upstream connect error")
