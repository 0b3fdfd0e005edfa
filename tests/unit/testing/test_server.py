"""How an embedded server starts, stops and is found; versions and bookmarks that a shared one can't be asked for."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import ssl
import threading
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
import uvloop

from asyncop.testing import ApiServer
from tests.contract.apiserver.cases import config_map
from tests.contract.apiserver.servers import embedded_endpoint
from tests.contract.apiserver.transcript import Caller
from tests.testbed.pki import Pki

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_it_serves_in_the_loop_that_is_running(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def use() -> None:
        async with ApiServer() as server, aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {server.token}"}
            async with session.get(f"{server.url}/api/v1/namespaces", headers=headers) as response:
                items = (await response.json())["items"]
            assert items[0]["metadata"]["name"] == "default"
            server.faults.answer(500, times=1)
            async with session.get(f"{server.url}/api/v1/namespaces", headers=headers) as response:
                assert response.status == 500

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(use())


def test_it_ends_with_open_watches_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with ApiServer() as server:
        endpoint = embedded_endpoint(server)
        connection = endpoint.connect()
        connection.request("GET", "/api/v1/pods?watch=1", headers=endpoint.headers())
        response = connection.getresponse()
    assert response.read() == b""
    connection.close()
    assert threading.active_count() == before


def test_it_says_that_it_is_for_tests_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asyncop.testing"), ApiServer() as server:
        pass
    assert f"embedded API server at {server.url}" in caplog.text
    assert "never for production" in caplog.text


def test_its_kubeconfig_lets_in_and_is_its_owners_only(server: ApiServer, tmp_path: Path) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert config["users"][0]["user"]["token"] == server.token
    assert path.stat().st_mode & 0o077 == 0


def test_a_wrong_token_is_refused_and_none_is_let_in_over_plain_http(server: ApiServer) -> None:
    connection = embedded_endpoint(server).connect()
    for headers, status in (({}, 200), ({"Authorization": "Bearer wrong"}, 401)):
        connection.request("GET", "/api/v1/pods", headers=headers)
        response = connection.getresponse()
        response.read()
        assert response.status == status
    server.faults.revoke("any")
    connection.request("GET", "/api/v1/pods")
    assert connection.getresponse().status == 401
    connection.close()


def test_bookmarks_come_in_between_for_those_who_asked(server: ApiServer, c: Caller) -> None:
    start = server.resource_version
    with c.watch(c.core("secrets"), resourceVersion=start, allowWatchBookmarks="true") as watch:
        c.post(c.core("configmaps"), config_map())
        (bookmark, _) = watch.read(2)
    assert bookmark["type"] == "BOOKMARK"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= start
    with c.watch(c.core("secrets"), resourceVersion=start, timeoutSeconds=1) as watch:
        assert watch.rest() == []


def test_versions_rise_over_all_resources(server: ApiServer, c: Caller) -> None:
    versions = [server.resource_version]
    for plural, name in (("configmaps", "a"), ("secrets", "b"), ("configmaps", "c")):
        versions.append(int(c.post(c.core(plural), {"metadata": {"name": name}}).version))
    assert versions == list(range(versions[0], versions[0] + 4))
    c.delete(c.core("secrets", "b"))
    assert int(c.get(c.core("secrets")).version) == versions[-1] + 1


def test_a_version_from_the_past_is_listed_as_it_was(server: ApiServer, c: Caller) -> None:
    c.post(c.core("configmaps"), config_map("a"))
    then = server.resource_version
    c.post(c.core("configmaps"), config_map("b"))
    c.patch(c.core("configmaps", "a"), {"data": {"x": "1"}})
    c.delete(c.core("configmaps", "a"))
    past = c.get(c.core("configmaps"), resourceVersion=then, resourceVersionMatch="Exact").body
    assert [(item["metadata"]["name"], item.get("data")) for item in past["items"]] == [("a", None)]


def test_a_watch_ends_with_its_client(server: ApiServer, c: Caller) -> None:
    with c.watch(c.core("configmaps")):
        assert server.open_watches == 1
    deadline = time.monotonic() + 5
    while server.open_watches:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_large_object_is_taken(c: Caller) -> None:
    assert c.post(c.core("configmaps"), config_map(data={"x": "y" * 2_000_000})).status == 201


@pytest.mark.asyncio
async def test_it_goes_down_and_comes_back_in_the_loop_that_is_running() -> None:
    async with ApiServer() as server, aiohttp.ClientSession() as session:
        server.refuse_connections()
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{server.url}/readyz")
        server.accept_connections()
        async with session.get(f"{server.url}/readyz") as response:
            assert await response.text() == "ok"


def test_with_tls_nobody_gets_in_without_the_token(tmp_path: Path) -> None:
    authority = Pki(tmp_path)
    authority.create()
    authority.issue("server", "server", alternative_names=["IP:127.0.0.1"])
    with ApiServer(tls=(authority.certificate("server"), authority.key("server"), authority.ca)) as server:
        assert json.loads(server.kubeconfig())["clusters"][0]["cluster"]["certificate-authority"] == str(authority.ca)
        tls = ssl.create_default_context(cafile=str(authority.ca))
        for token, status in (("", 401), (server.token, 200)):
            caller = Caller(dataclasses.replace(embedded_endpoint(server), tls=tls, token=token), "default")
            assert caller.get("/api/v1/namespaces").status == status
            caller.close()
