"""What an embedding program may get wrong before anything is started."""

from __future__ import annotations

import pytest

import asyncop


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    pass


class Options(asyncop.Struct):
    label: str = ""


@asyncop.reconciler(Pod, options=Options)
async def web_pods(pod: Pod, ctx: asyncop.Context) -> None: ...


@asyncop.reconciler(Pod)
async def without(pod: Pod, ctx: asyncop.Context) -> None: ...


def test_options_for_a_reconciler_that_is_not_there_are_refused() -> None:
    with pytest.raises(
        asyncop.ConfigError, match="controller_options: no reconciler is named 'web_pod'; it has: web_pods"
    ):
        asyncop.Manager(reconcilers=[web_pods], controller_options={"web_pod": Options()})


def test_options_of_another_class_are_refused() -> None:
    with pytest.raises(asyncop.ConfigError, match="controller_options: web_pods takes an instance of Options"):
        asyncop.Manager(reconcilers=[web_pods], controller_options={"web_pods": {"label": "a"}})
    with pytest.raises(asyncop.ConfigError, match="controller_options: without takes no options"):
        asyncop.Manager(reconcilers=[without], controller_options={"without": Options()})


def test_options_that_fit_are_taken() -> None:
    asyncop.Manager(reconcilers=[web_pods, without], controller_options={"web_pods": Options(label="a")})
