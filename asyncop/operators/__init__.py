"""The ready-made controllers, by the name that `-b`, the configuration and the chart know them by.

Each is built from its options into declarations like a user's own file, with nothing but the public API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncop.operators import stuckPods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncop import Declarations


@dataclass(frozen=True)
class Builtin:
    """One ready-made controller."""

    options: type[Any]
    """The Struct that its part of the configuration is checked against."""
    build: Callable[[Any], Declarations]
    """Its reconcilers and tasks for an instance of `options`; raises ConfigError if that makes no sense."""


BUILTINS: Mapping[str, Builtin] = {"stuckPods": Builtin(stuckPods.StuckPodsOptions, stuckPods.build)}

RESERVED: Mapping[str, str] = {
    "companionPods": "not in this version",
    "deploymentPods": "not in this version",
    "helmReleases": "not in this version",
    "etcdClusters": "reserved for a later version",
}
"""Names that exist in the documentation but not here yet, each with why."""
