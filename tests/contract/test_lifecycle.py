"""An object's whole life with a reconciler: finalizers, what is gone, status, conditions, children."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import asyncop
from tests.contract.operating import operating, until
from tests.testbed.api import ApiError
from tests.testbed.proxy import proxied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiohttp import web

    from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.asyncio

OURS = "asyncop.dev/contract.keeper"


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Secret(asyncop.Object, api_version="v1", kind="Secret"):
    type: str = ""


class Api:
    """Objects of one test's namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.call, self.namespace = cluster.api.call, namespace
        self.maps = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(self, name: str, **metadata: Any) -> str:
        return str(self.call("POST", self.maps, {"metadata": {"name": name, **metadata}})["metadata"]["uid"])

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        self.call("PATCH", f"{self.maps}/{name}", patch)

    def delete(self, name: str) -> None:
        self.call("DELETE", f"{self.maps}/{name}")

    def get(self, name: str) -> dict[str, Any] | None:
        try:
            return self.call("GET", f"{self.maps}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def finalizers(self, name: str) -> list[str]:
        obj = self.get(name)
        return list((obj or {}).get("metadata", {}).get("finalizers", []))


@pytest.fixture
def api(control_plane: Cluster, namespace: str) -> Api:
    return Api(control_plane, namespace)


class Keeper:
    """A reconciler with a finalizer, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.ran: list[str] = []
        self.cleaned: list[str] = []
        self.failures = 0

        @asyncop.reconciler(ConfigMap, name="keeper", **options)
        async def keeper(obj: ConfigMap, ctx: asyncop.Context) -> None:
            assert OURS in obj.metadata.finalizers, "set before the first run"
            self.ran.append(obj.metadata.name)

        @keeper.finalize
        async def leave(obj: ConfigMap, ctx: asyncop.Context) -> None:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("not yet")
            self.cleaned.append(obj.metadata.name)

        self.reconciler = keeper


async def test_an_object_stays_until_its_clean_up_has_succeeded(api: Api, kubeconfig: Path) -> None:
    keeper = Keeper()
    keeper.failures = 2
    api.create("a", finalizers=["example.com/other"])
    async with operating(kubeconfig, api.namespace, keeper.reconciler):
        await until(lambda: keeper.ran == ["a"], "it ran")
        assert api.finalizers("a") == ["example.com/other", OURS]
        api.delete("a")
        await until(lambda: api.finalizers("a") == ["example.com/other"], "ours went, the other's stayed")
        assert keeper.cleaned == ["a"]
        assert keeper.ran == ["a"], "the function doesn't run for an object that is being deleted"
    api.patch("a", {"metadata": {"finalizers": None}})


async def test_an_object_already_being_deleted_gets_no_finalizer(api: Api, kubeconfig: Path) -> None:
    keeper = Keeper()
    api.create("a", finalizers=["example.com/other"])
    api.delete("a")
    api.create("b")
    async with operating(kubeconfig, api.namespace, keeper.reconciler):
        await until(lambda: keeper.ran == ["b"], "only the living one ran")
        assert api.finalizers("a") == ["example.com/other"]
    assert keeper.cleaned == []
    api.patch("a", {"metadata": {"finalizers": None}})


async def test_an_object_that_leaves_the_selector_loses_the_finalizer_also_while_we_were_down(
    api: Api, kubeconfig: Path
) -> None:
    first = Keeper(labels={"app": "web"})
    api.create("live", labels={"app": "web"})
    api.create("down", labels={"app": "web"})
    api.create("never", labels={"app": "db"})
    async with operating(kubeconfig, api.namespace, first.reconciler):
        await until(lambda: sorted(first.ran) == ["down", "live"], "it ran for those that match")
        api.patch("live", {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: api.finalizers("live") == [], "the finalizer went with the label")
    api.patch("down", {"metadata": {"labels": {"app": "db"}}})
    again = Keeper(labels={"app": "web"})
    async with operating(kubeconfig, api.namespace, again.reconciler):
        await until(lambda: api.finalizers("down") == [], "what left while we were down is seen too")
    assert (again.ran, first.cleaned, again.cleaned) == ([], [], [])
    assert api.finalizers("never") == []


async def test_a_finalizer_of_an_older_version_that_nobody_needs_is_taken_off(api: Api, kubeconfig: Path) -> None:
    ran: list[str] = []

    @asyncop.reconciler(ConfigMap, name="keeper")
    async def plain(obj: ConfigMap, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    api.create("a", finalizers=[OURS, "asyncop.dev/other-operator.keeper"])
    async with operating(kubeconfig, api.namespace, plain):
        await until(lambda: ran == ["a"], "it ran")
        assert api.finalizers("a") == ["asyncop.dev/other-operator.keeper"]
    api.patch("a", {"metadata": {"finalizers": None}})


async def test_clean_up_is_not_run_again_when_taking_the_finalizer_off_meets_conflicts(
    api: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    keeper = Keeper()
    api.create("a")
    conflicts = 0

    async def somebody_writes(request: web.Request) -> None:
        nonlocal conflicts
        if keeper.cleaned and conflicts < 2:
            conflicts += 1
            await asyncio.to_thread(api.patch, "a", {"data": {"n": str(conflicts)}})

    async with (
        proxied(kubeconfig, tmp_path) as proxy,
        operating(proxy.kubeconfig, api.namespace, keeper.reconciler),
    ):
        await until(lambda: keeper.ran == ["a"], "it ran")
        proxy.before("PATCH", "/configmaps/a$", somebody_writes)
        api.delete("a")
        await until(lambda: api.get("a") is None, "it is gone")
    assert keeper.cleaned == ["a"]
    assert conflicts == 2


async def test_a_permanent_error_in_clean_up_keeps_the_object_and_says_so(api: Api, kubeconfig: Path) -> None:
    ran: list[str] = []

    @asyncop.reconciler(ConfigMap, name="keeper")
    async def keeper(obj: ConfigMap, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    @keeper.finalize
    async def leave(obj: ConfigMap, ctx: asyncop.Context) -> None:
        raise asyncop.PermanentError("the bucket isn't empty")

    def told() -> bool:
        events = api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events")["items"]
        return any("the bucket isn't empty" in event["note"] for event in events)

    api.create("a")
    async with operating(kubeconfig, api.namespace, keeper):
        await until(lambda: ran == ["a"], "it ran")
        api.delete("a")
        await until(told, "an Event says why it stays")
        assert api.finalizers("a") == [OURS]
    api.patch("a", {"metadata": {"finalizers": None}})


async def test_a_paused_object_is_cleaned_up_all_the_same(api: Api, kubeconfig: Path) -> None:
    keeper = Keeper()
    api.create("a")
    async with operating(kubeconfig, api.namespace, keeper.reconciler):
        await until(lambda: keeper.ran == ["a"], "it ran")
        api.patch("a", {"metadata": {"annotations": {"asyncop.dev/paused": "true"}}})
        api.delete("a")
        await until(lambda: api.get("a") is None, "it could go")


async def test_finalize_and_field_selectors_do_not_go_together() -> None:
    @asyncop.reconciler(ConfigMap, fields="metadata.name=a")
    async def selective(obj: ConfigMap, ctx: asyncop.Context) -> None: ...

    with pytest.raises(ValueError, match="can't be combined with fields="):

        @selective.finalize
        async def leave(obj: ConfigMap, ctx: asyncop.Context) -> None: ...


async def test_what_is_gone_is_told_before_the_first_run_of_one_reborn_under_its_name(
    api: Api, kubeconfig: Path
) -> None:
    story: list[tuple[str, str]] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        ctx.memo.setdefault("born", obj.metadata.uid)
        assert ctx.memo["born"] == obj.metadata.uid, "nothing outlives its object"
        story.append(("run", obj.metadata.uid))

    @look.gone
    async def forget(last: ConfigMap, ctx: asyncop.Context) -> None:
        assert ctx.memo["born"] == last.metadata.uid
        story.append(("gone", last.metadata.uid))

    first = api.create("a")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: story == [("run", first)], "it ran")
        api.delete("a")
        second = api.create("a")
        await until(lambda: story[1:] == [("gone", first), ("run", second)], "the end, then the beginning")


async def test_gone_is_tried_again_until_it_succeeds_and_told_for_what_leaves_the_selector(
    api: Api, kubeconfig: Path
) -> None:
    attempts: list[int] = []

    @asyncop.reconciler(ConfigMap, labels={"app": "web"})
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None: ...

    @look.gone
    async def forget(last: ConfigMap, ctx: asyncop.Context) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    api.create("a", labels={"app": "web"})
    async with operating(kubeconfig, api.namespace, look) as manager:
        await until(lambda: manager._unready() is None, "it is ready")
        await asyncio.sleep(0.2)
        api.patch("a", {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: attempts == [0, 1, 2], "it was told until it was heard")


# -- status and conditions, on a kind of the test's own


class WidgetStatus(asyncop.Struct):
    phase: str = ""
    conditions: tuple[asyncop.Condition, ...] = ()


@pytest.fixture
def widget(api: Api, namespace: str) -> Iterator[type[asyncop.Object]]:
    """A custom kind with a status subresource, and one object `w` of it."""
    group = f"{namespace}.example.com"

    class Widget(asyncop.Object, api_version=f"{group}/v1", kind="Widget"):
        status: WidgetStatus = WidgetStatus()

    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.call("POST", crds, {"metadata": {"name": f"widgets.{group}"}, "spec": spec})
    try:
        yield Widget
    finally:
        api.call("DELETE", f"{crds}/widgets.{group}")


async def make_widget(api: Api, kind: type[asyncop.Object]) -> str:
    """Create `w` once the server serves the kind; returns its path."""
    api_version = kind.__resource__.api_version
    path = f"/apis/{api_version}/namespaces/{api.namespace}/widgets"

    def created() -> bool:
        with contextlib.suppress(ApiError):
            body = {"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1}}
            api.call("POST", path, body)
            return True
        return False

    await until(created, "the server serves the kind")
    return f"{path}/w"


async def test_status_and_conditions_are_written_once_also_after_a_failure(
    api: Api, kubeconfig: Path, tmp_path: Path, widget: type[asyncop.Object]
) -> None:
    runs: list[int] = []

    @asyncop.reconciler(widget)
    async def look(obj: Any, ctx: asyncop.Context) -> asyncop.Result:
        runs.append(ctx.attempt)
        ctx.status(phase="Working", ready_replicas=len(runs) >= 0)
        ctx.condition("Ready", False, "Starting", "not there yet")
        if len(runs) == 1:
            raise RuntimeError("fails after staging")
        return asyncop.Result(requeue_after=0.05)

    path = await make_widget(api, widget)
    other = {
        "type": "Other",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    api.call("PATCH", f"{path}/status", {"status": {"conditions": [other]}})
    async with proxied(kubeconfig, tmp_path) as proxy:
        async with operating(proxy.kubeconfig, api.namespace, look):
            await until(lambda: len(runs) > 5, "it ran several times")
        writes = [seen for seen in proxy.seen if seen.startswith("PATCH") and seen.endswith("/status")]
        assert len(writes) == 1, "what is said already is not written again"
    status = api.call("GET", path)["status"]
    assert (status["phase"], status["readyReplicas"]) == ("Working", True)
    others, ours = status["conditions"]
    assert others == other
    assert (ours["type"], ours["status"], ours["reason"], ours["observedGeneration"]) == (
        "Ready",
        "False",
        "Starting",
        1,
    )
    assert ours["lastTransitionTime"].endswith("Z")


# -- children


async def test_an_applied_child_is_owned_found_and_not_sent_again(api: Api, kubeconfig: Path, tmp_path: Path) -> None:
    owned: list[list[str]] = []

    @asyncop.reconciler(ConfigMap, labels={"app": "parent"}, sources=[asyncop.owns(Secret)])
    async def parent(obj: ConfigMap, ctx: asyncop.Context) -> asyncop.Result:
        child = await ctx.apply(Secret(metadata=asyncop.ObjectMeta(name=f"{obj.metadata.name}-child"), type="x/y"))
        assert isinstance(child, Secret)
        owned.append([child.metadata.name for child in ctx.owned(Secret)])
        return asyncop.Result(requeue_after=0.05)

    uid = api.create("a", labels={"app": "parent"})
    secrets = f"/api/v1/namespaces/{api.namespace}/secrets"
    api.call("POST", secrets, {"metadata": {"name": "stranger"}})
    async with proxied(kubeconfig, tmp_path) as proxy, operating(proxy.kubeconfig, api.namespace, parent):
        await until(lambda: len(owned) > 5, "it ran several times")
        applies = [seen for seen in proxy.seen if seen == f"PATCH {secrets}/a-child"]
        assert len(applies) == 1, "the same intent is not sent again"
        assert set(map(tuple, owned)) == {("a-child",)}
        api.call("DELETE", f"{secrets}/a-child")
        await until(lambda: len([seen for seen in proxy.seen if seen == applies[0]]) == 2, "it is made again")
    [reference] = api.call("GET", f"{secrets}/a-child")["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"], reference["kind"]) == (uid, True, "ConfigMap")


@pytest.mark.parametrize(
    ("child", "says"),
    [
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}, "can't be owned"),
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}, "cluster-scoped"),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "u"}}, "came from a store"),
        ({"kind": "Secret", "metadata": {"name": "s"}}, "needs apiVersion, kind"),
    ],
    ids=["other namespace", "cluster-scoped", "from a store", "incomplete"],
)
async def test_a_child_that_cannot_be_owned_is_refused_at_once(
    api: Api, kubeconfig: Path, child: dict[str, Any], says: str
) -> None:
    errors: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def parent(obj: ConfigMap, ctx: asyncop.Context) -> None:
        try:
            await ctx.apply(child)
        except ValueError as error:
            errors.append(str(error))

    api.create("a")
    async with operating(kubeconfig, api.namespace, parent):
        await until(lambda: len(errors) == 1, "it was refused")
    assert says in errors[0]
