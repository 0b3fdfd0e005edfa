"""Fill an API server with Pods like those of a real cluster: about 6.8 KB each, with status and managedFields."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from apiserver import server, tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

PARALLEL = 40
CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")


def namespace_of(number: int, namespaces: int) -> str:
    return f"ns-{number % namespaces:05d}"


def pod(number: int) -> dict[str, Any]:
    env: list[dict[str, Any]] = [{"name": f"VAR_{k}", "value": f"value-{k}"} for k in range(10)]
    env.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    container = {
        "name": "app",
        "image": "registry.example/web:1.2.3",
        "ports": [{"containerPort": 8080, "name": "http"}],
        "env": env,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    labels = {
        "app": "web",
        "app.kubernetes.io/name": "web",
        "app.kubernetes.io/instance": f"web-{number % 97}",
        "pod-template-hash": "5d6f7c8b9",
        "tier": "frontend",
    }
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "checksum/config": "0123456789abcdef" * 4,
    }
    return {
        "metadata": {"name": f"web-{number:06d}", "labels": labels, "annotations": annotations},
        "spec": {
            "nodeName": f"node-{number % 200:03d}",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "app-config"}}, {"name": "tmp", "emptyDir": {}}],
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        },
    }


def status(number: int) -> dict[str, Any]:
    since = "2026-11-30T00:00:00Z"
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    container = {
        "name": "app",
        "image": "registry.example/web:1.2.3",
        "imageID": "registry.example/web@sha256:" + "ab" * 32,
        "containerID": "containerd://" + "cd" * 32,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": since}},
    }
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in CONDITIONS]
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": f"192.168.0.{number % 200}",
            "startTime": since,
            "conditions": conditions,
            "containerStatuses": [container],
        }
    }


async def fill(namespaces: int, pods: int) -> None:
    """Create the namespaces and the Pods; what is there already stays."""
    base = server()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls(), limit=PARALLEL)) as session:

        async def send(method: str, path: str, body: dict[str, Any], kind: str = "application/json") -> None:
            headers = {"Content-Type": kind}
            async with session.request(method, base + path, data=orjson.dumps(body), headers=headers) as response:
                text = await response.text()
                if response.status >= 400 and response.status != 409:
                    raise SystemExit(f"{method} {path}: {response.status} {text[:300]}")

        async def make_namespace(number: int) -> None:
            name = namespace_of(number, namespaces)
            await send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

        async def make_pod(number: int) -> None:
            path = f"/api/v1/namespaces/{namespace_of(number, namespaces)}/pods"
            await send("POST", path, pod(number))
            await send("PATCH", f"{path}/web-{number:06d}/status", status(number), "application/merge-patch+json")

        await _parallel(make_namespace, range(namespaces))
        await _parallel(make_pod, range(pods))


async def _parallel(make: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await make(number)

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
