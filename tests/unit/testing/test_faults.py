"""Each fault does what its docstring says, as a client that speaks plain HTTP sees it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from asyncop.testing import ApiServer
from tests.contract.apiserver.cases import config_map
from tests.contract.apiserver.servers import embedded_endpoint
from tests.contract.apiserver.transcript import Caller, Endpoint
from tests.testbed.pki import Pki

if TYPE_CHECKING:
    from pathlib import Path


def test_an_answer_comes_so_many_times_for_its_resource_and_verb(server: ApiServer, c: Caller) -> None:
    server.faults.answer(500, "configmaps", verb="list", times=2)
    assert c.get(c.core("secrets")).status == 200
    assert c.post(c.core("configmaps"), config_map()).status == 201
    assert [c.get(c.core("configmaps")).status for _ in range(3)] == [500, 500, 200]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
    ],
)
def test_an_answer_lasts_until_it_is_lifted(server: ApiServer, c: Caller, status: int, reason: str) -> None:
    server.faults.answer(status)
    for _ in range(2):
        answer = c.get(c.core("configmaps"))
        assert (answer.status, answer.body["reason"]) == (status, reason)
    server.faults.lift()
    assert c.get(c.core("configmaps")).status == 200


def test_a_429_says_when_to_come_back(server: ApiServer, c: Caller) -> None:
    server.faults.answer(429, times=1, retry_after=7)
    answer = c.get(c.core("configmaps"))
    assert (answer.headers["Retry-After"], answer.body["details"]["retryAfterSeconds"]) == ("7", 7)


def test_what_is_forbidden_is_so_in_access_reviews(server: ApiServer, c: Caller) -> None:
    server.faults.answer(403, "deployments.apps")
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed(group: str, resource: str) -> bool:
        spec = {"resourceAttributes": {"verb": "list", "group": group, "resource": resource}}
        return bool(c.post(path, {"spec": spec}).body["status"]["allowed"])

    assert not allowed("apps", "deployments")
    assert allowed("", "pods")


def test_a_delay_is_waited_for(server: ApiServer, c: Caller) -> None:
    server.faults.delay(0.2, times=1)
    start = time.monotonic()
    assert c.get(c.core("configmaps")).status == 200
    assert time.monotonic() - start >= 0.2


def test_a_reset_ends_the_connection_without_an_answer(server: ApiServer, c: Caller) -> None:
    server.faults.reset("configmaps", times=1)
    with pytest.raises(ConnectionResetError):
        c.get(c.core("configmaps"))
    c.close()
    assert c.get(c.core("configmaps")).status == 200


def test_a_hanging_request_is_never_answered(server: ApiServer) -> None:
    server.faults.hang("configmaps", times=1)
    connection = embedded_endpoint(server).connect(timeout=0.2)
    connection.request("GET", "/api/v1/configmaps", headers=embedded_endpoint(server).headers())
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_a_watch_is_cut_in_the_middle_of_a_line(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.faults.cut("configmaps")
        c.post(c.core("configmaps"), config_map())
        with pytest.raises(http.client.IncompleteRead) as broken:
            watch.response.read()
    assert broken.value.partial.startswith(b'{"type":"ADDED","object":{')
    assert not broken.value.partial.endswith(b"\n")


def test_open_watches_are_reset_at_once(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.faults.reset_watches()
        with pytest.raises(ConnectionResetError):
            watch.response.read()


def test_open_watches_end_properly(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.faults.end_watches("secrets")
        c.post(c.core("configmaps"), config_map())
        watch.read()
        server.faults.end_watches("configmaps")
        assert watch.rest() == []


def test_an_error_line_ends_open_watches(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.faults.fail_watches(status=500)
        (event,) = watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)


def test_a_silent_watch_stays_open_and_says_nothing(server: ApiServer, c: Caller) -> None:
    endpoint = embedded_endpoint(server)
    connection = endpoint.connect(timeout=0.3)
    path = f"{c.core('configmaps')}?watch=1&allowWatchBookmarks=1&timeoutSeconds=1"
    connection.request("GET", path, headers=endpoint.headers())
    response = connection.getresponse()
    assert json.loads(response.readline())["type"] == "BOOKMARK"
    server.faults.go_silent()
    with pytest.raises(TimeoutError):
        response.read()
    c.post(c.core("configmaps"), config_map())
    with c.watch(c.core("configmaps")) as other:
        assert other.read()[0]["type"] == "ADDED"
    connection.close()


def test_held_events_come_in_order_when_released(server: ApiServer, c: Caller) -> None:
    start = server.resource_version
    server.faults.hold_events()
    with c.watch(c.core("configmaps"), resourceVersion=start) as watch:
        for name in "abc":
            c.post(c.core("configmaps"), config_map(name))
        server.faults.release_events()
        assert [event["object"]["metadata"]["name"] for event in watch.read(3)] == ["a", "b", "c"]


def test_a_line_can_be_anything(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.faults.send_line(b'{"type":"ADDED","object":{"metadata":7}}', "configmaps")
        assert watch.read() == [{"type": "ADDED", "object": {"metadata": 7}}]


def test_expired_versions_are_told_in_the_stream_and_as_a_status(server: ApiServer, c: Caller) -> None:
    for name in "abc":
        c.post(c.core("configmaps"), config_map(name))
    page = c.get(c.core("configmaps"), limit=1)
    old = server.resource_version - 2
    c.delete(c.core("configmaps", "c"))
    server.faults.expire_versions("configmaps")
    with c.watch(c.core("configmaps"), resourceVersion=old) as watch:
        (event,) = watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert c.get(c.core("configmaps"), **{"limit": 1, "continue": page.metadata["continue"]}).status == 410
    with c.watch(c.core("secrets"), resourceVersion=old, timeoutSeconds=1) as watch:
        assert watch.rest() == []


def test_a_revoked_token_is_refused_and_another_accepted(server: ApiServer, c: Caller) -> None:
    server.faults.revoke(server.token)
    answer = c.get(c.core("configmaps"))
    assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")
    server.faults.accept("rotated")
    rotated = Caller(Endpoint("127.0.0.1", embedded_endpoint(server).port, token="rotated"), "default")
    assert rotated.get(c.core("configmaps")).status == 200
    rotated.close()


def test_a_server_that_is_down_comes_back_at_its_port_with_all_it_had(server: ApiServer, c: Caller) -> None:
    c.post(c.core("configmaps"), config_map())
    with c.watch(c.core("configmaps"), resourceVersion=server.resource_version) as watch:
        server.refuse_connections()
        with pytest.raises(ConnectionResetError):
            watch.response.read()
    c.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", embedded_endpoint(server).port), timeout=1)
    server.accept_connections()
    assert c.get(c.core("configmaps", "a")).status == 200


def test_a_swapped_certificate_meets_new_connections(tmp_path: Path) -> None:
    authorities = [Pki(tmp_path / name) for name in ("old", "new")]
    for authority in authorities:
        authority.create()
        authority.issue("server", "server", alternative_names=["IP:127.0.0.1"])
    old, new = authorities
    with ApiServer(tls=(old.certificate("server"), old.key("server"), old.ca)) as server:
        assert server.url.startswith("https://")
        trusted = [ssl.create_default_context(cafile=str(authority.ca)) for authority in authorities]
        port = int(server.url.rpartition(":")[2])
        callers = [Caller(Endpoint("127.0.0.1", port, tls, server.token), "default") for tls in trusted]
        assert callers[0].get("/version").status == 200
        server.swap_certificate(new.certificate("server"), new.key("server"))
        assert callers[0].get("/version").status == 200
        callers[0].close()
        with pytest.raises(ssl.SSLCertVerificationError):
            callers[0].get("/version")
        assert callers[1].get("/version").status == 200
        for caller in callers:
            caller.close()
