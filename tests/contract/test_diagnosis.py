"""What people ask a running operator: of one object, and of everything."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from structlog.testing import capture_logs

import asyncop
from tests.contract.operating import operating, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.asyncio


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    pass


@asyncop.reconciler(ConfigMap)
async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
    if obj.metadata.name == "bad":
        raise RuntimeError("always")


def create(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})


async def test_an_object_can_be_asked_for_and_tells_why_it_fails(
    control_plane: Cluster, kubeconfig: Path, namespace: str
) -> None:
    create(control_plane, namespace, "bad")
    create(control_plane, namespace, "good")
    with capture_logs() as logs:
        async with operating(kubeconfig, namespace, look, health_address="127.0.0.1:0"):
            await until(lambda: any("Reconciler failed" in line["event"] for line in logs), "it failed")
            address = next(line["address"] for line in logs if line["event"] == "Serving health probes")
            async with aiohttp.ClientSession() as session:

                async def ask(path: str) -> tuple[int, Any]:
                    async with session.get(f"http://{address}/debug/objects/{path}") as response:
                        is_json = response.content_type == "application/json"
                        return response.status, await (response.json() if is_json else response.text())

                _, known = await ask(f"configmaps/{namespace}/bad")
                assert known["look"]["attempts"] > 0
                assert "always" in known["look"]["lastResult"]
                assert known["look"]["cached"]
                _, known = await ask(f"configmaps/{namespace}/good")
                assert (known["look"]["attempts"], known["look"]["cached"]) == (0, True)
                _, known = await ask(f"configmaps/{namespace}/none")
                assert not known["look"]["cached"]
                there_are = "no controller has pods as its kind; there are: configmaps\n"
                assert (await ask("pods/default/a")) == (404, there_are)
                assert (await ask("configmaps/default"))[0] == 404


async def test_sigusr1_logs_what_queues_stores_and_tasks_are_doing(
    control_plane: Cluster, kubeconfig: Path, namespace: str
) -> None:
    create(control_plane, namespace, "good")
    with capture_logs() as logs:
        async with operating(kubeconfig, namespace, look) as manager:
            await until(lambda: manager._unready() is None, "it is ready")
            os.kill(os.getpid(), signal.SIGUSR1)
            await until(lambda: any(line["event"] == "State of task" for line in logs), "it was told")
    [queue] = [line for line in logs if line["event"] == "State of queue"]
    [store] = [line for line in logs if line["event"] == "State of store"]
    assert (queue["controller"], queue["working"]) == ("look", True)
    assert (store["resource"], store["objects"] >= 1, store["synced"]) == ("configmaps", True, True)
