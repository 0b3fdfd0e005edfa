"""The process as a whole: versions, the event loop's lag, and prometheus_client's own process and platform series."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from asyncop.metrics.registry import REGISTRY
from asyncop.metrics.series import Distributions, Readings

_lag = Distributions(
    "asyncop_event_loop_lag_seconds",
    "How late the event loop ran a timer; what blocks the loop shows here",
    (),
    bounds=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
event_loop_lag = _lag.labels()
"""Seconds."""

_build_info = Readings(
    "gauge", "asyncop_build_info", "Always 1; the versions are labels", ("version", "python", "kubernetes_asyncio")
)


@cache
def _versions() -> tuple[str, str, str]:
    return _version("asyncop"), platform.python_version(), _version("kubernetes_asyncio")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


_build_info.watch("process", lambda: [(_versions(), 1.0)])
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)
