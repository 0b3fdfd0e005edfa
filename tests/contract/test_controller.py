"""What a reconciler is promised, against a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import asyncop
from asyncop import metrics
from tests.contract.operating import operating, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.asyncio


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Secret(asyncop.Object, api_version="v1", kind="Secret"):
    type: str = ""


class Api:
    """Objects of one test's namespace, made and changed as a user would."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.call, self.namespace = cluster.api.call, namespace
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(self, name: str, owner: str | None = None, **data: str) -> str:
        metadata: dict[str, Any] = {"name": name}
        if owner:
            uid = self.call("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{owner}")["metadata"]["uid"]
            reference = {"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid, "controller": True}
            metadata["ownerReferences"] = [reference]
        return str(self.call("POST", self._maps, {"metadata": metadata, "data": data})["metadata"]["uid"])

    def secret(self, name: str) -> None:
        self.call("POST", f"/api/v1/namespaces/{self.namespace}/secrets", {"metadata": {"name": name}})

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        self.call("PATCH", f"{self._maps}/{name}", patch)

    def delete(self, name: str) -> None:
        self.call("DELETE", f"{self._maps}/{name}")


@pytest.fixture
def api(control_plane: Cluster, namespace: str) -> Api:
    return Api(control_plane, namespace)


async def test_it_runs_for_what_exists_what_appears_and_what_changes(api: Api, kubeconfig: Path) -> None:
    seen: list[tuple[str, str]] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        seen.append((obj.metadata.name, obj.data.get("k", "")))

    api.create("before", k="1")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: ("before", "1") in seen, "it ran for what existed")
        api.create("after", k="1")
        await until(lambda: ("after", "1") in seen, "it ran for what appeared")
        api.patch("after", {"data": {"k": "2"}})
        await until(lambda: ("after", "2") in seen, "it ran for what changed")


async def test_a_change_of_nothing_declared_triggers_nothing(api: Api, kubeconfig: Path) -> None:
    seen: list[str] = []

    @asyncop.reconciler(Secret)
    async def look(obj: Secret, ctx: asyncop.Context) -> None:
        seen.append(obj.metadata.name)

    api.secret("a")
    path = f"/api/v1/namespaces/{api.namespace}/secrets"
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: seen == ["a"], "it ran once")
        api.call("PATCH", f"{path}/a", {"data": {"undeclared": "eA=="}})
        api.secret("b")
        await until(lambda: "b" in seen, "the watch has come past the change")
        assert seen == ["a", "b"]


async def test_an_untyped_object_is_a_mapping_with_metadata(api: Api, kubeconfig: Path) -> None:
    seen: dict[str, Any] = {}

    @asyncop.reconciler("configmaps")
    async def look(obj: asyncop.UntypedObject, ctx: asyncop.Context) -> None:
        patched = await ctx.client.patch(obj, {"data": {"seen": "yes"}})
        seen[obj.metadata.name] = dict(patched)
        seen["cached"] = dict(obj)

    api.create("a", k="v")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: "a" in seen, "it ran")
    assert seen["a"]["data"] == {"k": "v", "seen": "yes"}
    assert (seen["cached"]["apiVersion"], seen["cached"]["kind"]) == ("v1", "ConfigMap")
    assert "managedFields" not in seen["cached"]["metadata"]


async def test_a_child_wakes_its_owner_when_it_appears_changes_and_goes(api: Api, kubeconfig: Path) -> None:
    children: list[int] = []

    @asyncop.reconciler(Secret, sources=[asyncop.owns(ConfigMap)])
    async def owner(obj: Secret, ctx: asyncop.Context) -> None:
        children.append(len(ctx.store(ConfigMap)))

    api.secret("owner")
    async with operating(kubeconfig, api.namespace, owner):
        await until(lambda: children == [0], "it ran for the owner")
        api.create("stranger")
        api.create("child", owner="owner")
        await until(lambda: children == [0, 2], "the child woke it, the stranger did not")
        api.patch("child", {"data": {"k": "2"}})
        await until(lambda: len(children) == 3, "the child's change woke it")
        api.delete("child")
        await until(lambda: children[-1] == 1 and len(children) == 4, "the child's end woke it")


async def test_a_mapper_wakes_what_it_returns(api: Api, kubeconfig: Path) -> None:
    woken: list[str] = []

    def by_index(new: ConfigMap | None, old: ConfigMap | None, ctx: asyncop.MapContext) -> list[Secret]:
        return ctx.store(Secret).by_index("name", (new or old).data.get("secret", ""))

    @asyncop.reconciler(
        Secret, indexes={"name": lambda obj: [obj.metadata.name]}, sources=[asyncop.watch(ConfigMap, by_index)]
    )
    async def look(obj: Secret, ctx: asyncop.Context) -> None:
        woken.append(obj.metadata.name)

    api.secret("a")
    api.secret("b")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: sorted(woken) == ["a", "b"], "both ran once")
        api.create("pointer", secret="b")
        await until(lambda: woken[2:] == ["b"], "only b was woken")


async def test_a_result_runs_it_again_and_an_error_after_a_backoff(api: Api, kubeconfig: Path) -> None:
    attempts: dict[str, list[int]] = {"again": [], "fails": []}

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> asyncop.Result | None:
        attempts[obj.metadata.name].append(ctx.attempt)
        if obj.metadata.name == "fails" and len(attempts["fails"]) < 4:
            raise RuntimeError("not yet")
        return asyncop.Result(requeue_after=0.05) if obj.metadata.name == "again" else None

    api.create("again")
    api.create("fails")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: len(attempts["again"]) > 5, "it was run again and again")
        await until(lambda: len(attempts["fails"]) == 4, "it was retried until it succeeded")
    assert attempts["fails"] == [0, 1, 2, 3]
    assert set(attempts["again"]) == {0}


async def test_a_permanent_error_waits_for_a_change(api: Api, kubeconfig: Path) -> None:
    runs: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.data["k"])
        raise asyncop.PermanentError("k is wrong")

    api.create("a", k="1")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: runs == ["1"], "it ran")
        await asyncio.sleep(0.5)
        assert runs == ["1"], "not retried"
        api.patch("a", {"data": {"k": "2"}})
        await until(lambda: runs == ["1", "2"], "the change triggered it")


async def test_a_run_that_fails_after_its_object_has_gone_is_remembered_by_nobody(api: Api, kubeconfig: Path) -> None:
    ended: list[str] = []

    @asyncop.reconciler(ConfigMap, name="mourner", labels={"for": "mourner"}, uses={ConfigMap: "delete"})
    async def mourner(obj: ConfigMap, ctx: asyncop.Context) -> None:
        await ctx.client.delete(obj)
        await until(lambda: ctx.store(ConfigMap).get(obj.metadata.name) is None, "the store knows")
        ended.append(obj.metadata.name)
        raise asyncop.PermanentError("too late")

    def given_up() -> list[str]:
        text = metrics.render()[0].decode().splitlines()
        return [line for line in text if line.startswith('asyncop_objects_failing{controller="mourner",reason="perm')]

    async with operating(kubeconfig, api.namespace, mourner):
        api.create("doomed")
        api.patch("doomed", {"metadata": {"labels": {"for": "mourner"}}})
        await until(lambda: bool(ended), "it ran")
        await until(lambda: [line.split()[-1] for line in given_up()] == ["0.0"], "nothing is failing")


async def test_a_temporary_error_runs_it_again_after_its_own_delay(api: Api, kubeconfig: Path) -> None:
    at: list[float] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        at.append(ctx.now())
        if len(at) == 1:
            raise asyncop.TemporaryError("soon", delay=0.7)

    api.create("a")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: len(at) == 2, "it ran again")
    assert at[1] - at[0] >= 0.7


async def test_one_failing_object_and_one_slow_object_hold_up_nobody(api: Api, kubeconfig: Path) -> None:
    done: list[str] = []
    release = asyncio.Event()

    @asyncop.reconciler(ConfigMap, workers=2)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        if obj.metadata.name == "bad":
            raise RuntimeError("always")
        if obj.metadata.name == "slow":
            await release.wait()
        done.append(obj.metadata.name)

    for name in ("bad", "slow", "a", "b"):
        api.create(name)
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: sorted(done) == ["a", "b"], "the others ran")
        release.set()
        await until(lambda: "slow" in done, "and the slow one ended")


async def test_a_run_that_takes_too_long_is_a_failure(api: Api, kubeconfig: Path) -> None:
    attempts: list[int] = []

    @asyncop.reconciler(ConfigMap, timeout=0.1)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            await asyncio.Event().wait()

    api.create("a")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: attempts == [0, 1], "it was cancelled and tried again")


async def test_one_unreadable_object_is_told_and_the_others_are_reconciled(api: Api, kubeconfig: Path) -> None:
    class Strict(asyncop.Object, api_version="v1", kind="ConfigMap"):
        data: dict[str, int] = asyncop.field(default_factory=dict)

    seen: list[str] = []

    @asyncop.reconciler(Strict)
    async def strict(obj: Strict, ctx: asyncop.Context) -> None:
        seen.append(obj.metadata.name)

    api.create("bad", k="not a number")
    api.create("good")

    def told() -> bool:
        events = api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events")["items"]
        return [(event["reason"], event["regarding"]["name"]) for event in events] == [("Unreadable", "bad")]

    async with operating(kubeconfig, api.namespace, strict):
        await until(lambda: seen == ["good"], "the good one ran")
        await until(told, "an Event tells of the bad one")


async def test_a_paused_object_is_left_alone_until_the_annotation_goes(api: Api, kubeconfig: Path) -> None:
    runs: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.metadata.name)

    api.create("a")
    api.patch("a", {"metadata": {"annotations": {"asyncop.dev/paused": "true"}}})
    api.create("b")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: "b" in runs, "the other ran")
        api.patch("a", {"metadata": {"annotations": None}})
        await until(lambda: "a" in runs, "it ran once it was no longer paused")


async def test_what_it_wrote_it_reads_back_at_once_and_is_not_woken_by(api: Api, kubeconfig: Path) -> None:
    read_back: list[str | None] = []
    runs: list[str] = []
    others: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def writes(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.data.get("k", ""))
        await ctx.client.patch(obj, {"data": {"k": "mine"}})
        cached = ctx.store(ConfigMap).get(obj.metadata.name)
        read_back.append(cached and cached.data.get("k"))

    @asyncop.reconciler(ConfigMap)
    async def looks(obj: ConfigMap, ctx: asyncop.Context) -> None:
        others.append(obj.data.get("k", ""))

    api.create("a", k="theirs")
    async with operating(kubeconfig, api.namespace, writes, looks):
        await until(lambda: "mine" in others, "the other controller was woken by the write")
        assert (runs, read_back) == (["theirs"], ["mine"])
        api.patch("a", {"data": {"k": "theirs again"}})
        await until(lambda: runs == ["theirs", "theirs again"], "somebody else's write woke it")
        await until(lambda: read_back == ["mine", "mine"], "and it wrote again")


async def test_a_lifted_pause_is_noticed_whatever_the_predicates_hide(api: Api, kubeconfig: Path) -> None:
    runs: list[str] = []

    @asyncop.reconciler(ConfigMap, predicates=[lambda new, old: old is None])
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.metadata.name)
        assert ctx.store(ConfigMap).age() < 60

    api.create("a")
    api.patch("a", {"metadata": {"annotations": {"asyncop.dev/paused": "true"}}})
    api.create("b")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: runs == ["b"], "the other ran")
        api.patch("b", {"data": {"hidden": "yes"}})
        api.patch("a", {"metadata": {"annotations": None}})
        await until(lambda: runs == ["b", "a"], "it ran once it was no longer paused, and nothing else did")


async def test_enqueue_runs_a_key_from_outside(api: Api, kubeconfig: Path) -> None:
    runs: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.metadata.name)

    api.create("a")
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: runs == ["a"], "it ran")
        await asyncio.to_thread(look.enqueue, api.namespace, "a")
        await until(lambda: runs == ["a", "a"], "and again")


async def test_labels_are_selected_by_the_server(api: Api, kubeconfig: Path) -> None:
    runs: list[str] = []

    @asyncop.reconciler(ConfigMap, labels={"app": "web"})
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.metadata.name)
        assert len(ctx.store(ConfigMap)) == 1

    api.create("other")
    api.create("a")
    api.patch("a", {"metadata": {"labels": {"app": "web"}}})
    async with operating(kubeconfig, api.namespace, look):
        await until(lambda: runs == ["a"], "only the labelled one ran")


async def test_a_kind_that_is_not_there_yet_is_picked_up_when_it_comes(
    api: Api, kubeconfig: Path, control_plane: Cluster
) -> None:
    group = f"{api.namespace}.example.com"

    class Widget(asyncop.Object, api_version=f"{group}/v1", kind="Widget"):
        pass

    widgets: list[str] = []
    maps: list[str] = []

    @asyncop.reconciler(Widget)
    async def on_widget(obj: Widget, ctx: asyncop.Context) -> None:
        widgets.append(obj.metadata.name)

    @asyncop.reconciler(ConfigMap)
    async def on_map(obj: ConfigMap, ctx: asyncop.Context) -> None:
        maps.append(obj.metadata.name)

    api.create("a")
    async with operating(kubeconfig, api.namespace, on_widget, on_map):
        await until(lambda: maps == ["a"], "the other kind works")
        crd = {
            "metadata": {"name": f"widgets.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        }
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.call("POST", crds, crd)
        try:

            def created() -> bool:
                path = f"/apis/{group}/v1/namespaces/{api.namespace}/widgets"
                body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}}
                try:
                    api.call("POST", path, body)
                except Exception as error:
                    return "404" not in str(error)
                return True

            await until(created, "the server serves the kind")
            await until(lambda: widgets == ["w"], "the kind was picked up")
        finally:
            api.call("DELETE", f"{crds}/widgets.{group}")


async def test_an_optional_kind_that_is_not_there_reads_as_empty_and_holds_up_nobody(
    api: Api, kubeconfig: Path
) -> None:
    class Nothing(asyncop.Object, api_version="nowhere.example.com/v1", kind="Nothing"):
        pass

    runs: list[int] = []

    @asyncop.reconciler(ConfigMap, sources=[asyncop.read(Nothing, optional=True, indexes={"a": lambda obj: []})])
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(len(ctx.store(Nothing)) + len(ctx.store(Nothing).by_index("a", "b")))
        assert ctx.store(Nothing).get("x") is None

    api.create("a")
    async with operating(kubeconfig, api.namespace, look) as manager:
        await until(lambda: runs == [0], "it ran")
        assert manager._unready() is None


async def test_stopping_lets_a_running_reconcile_end_and_starts_nothing_more(api: Api, kubeconfig: Path) -> None:
    started: list[str] = []
    ended: list[str] = []
    release = asyncio.Event()

    @asyncop.reconciler(ConfigMap, workers=1)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        started.append(obj.metadata.name)
        await release.wait()
        ended.append(obj.metadata.name)

    for name in "abc":
        api.create(name)
    async with operating(kubeconfig, api.namespace, look) as manager:
        await until(lambda: len(started) == 1, "one is running")
        manager.stop()
        await asyncio.sleep(0.2)
        release.set()
    assert len(started) == 1
    assert ended == started


async def test_a_reconcile_that_does_not_end_is_cancelled_after_the_graceful_time(api: Api, kubeconfig: Path) -> None:
    cancelled = asyncio.Event()
    running = asyncio.Event()

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    api.create("a")
    async with operating(kubeconfig, api.namespace, look, graceful_timeout=0.3):
        await asyncio.wait_for(running.wait(), 10)
    assert cancelled.is_set()


async def test_a_task_that_fails_takes_the_operator_down_with_exit_code_1(api: Api, kubeconfig: Path) -> None:
    @asyncop.task
    async def broken() -> None:
        raise RuntimeError("broken")

    options = asyncop.ManagerOptions(namespaces=(api.namespace,), kubeconfig=str(kubeconfig))
    assert await asyncop.Manager(tasks=[broken], options=options).run() == 1


async def test_an_api_server_that_never_answers_ends_with_exit_code_4(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        '{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":'
        '{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{}}],'
        '"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}'
    )
    options = asyncop.ManagerOptions(kubeconfig=str(kubeconfig), start_timeout=0.5)
    assert await asyncop.Manager(options=options).run() == 4


async def test_a_wrong_declaration_found_at_start_is_raised_as_the_configuration_error_it_is(
    api: Api, kubeconfig: Path
) -> None:
    @asyncop.reconciler("apps/v1/deployments", fields="metadata.name=a")
    async def first(obj: asyncop.UntypedObject, ctx: asyncop.Context) -> None: ...

    async def resolve(kind: object) -> None:
        raise asyncop.ConfigError("'things' is a.example and b.example; name the group")

    async with asyncop.connect(str(kubeconfig), user_agent="test", field_manager="test") as client:
        client.resolve = resolve  # type: ignore[assignment,method-assign]  # a server with two such kinds
        with pytest.raises(asyncop.ConfigError, match="name the group"):
            await asyncop.Manager(reconcilers=[first], client=client).run()


async def test_a_controller_with_nothing_to_do_does_not_end_anothers_running_reconcile(
    api: Api, kubeconfig: Path
) -> None:
    ended: list[str] = []
    running, release = asyncio.Event(), asyncio.Event()

    @asyncop.reconciler(ConfigMap)
    async def busy(obj: ConfigMap, ctx: asyncop.Context) -> None:
        running.set()
        await release.wait()
        ended.append(obj.metadata.name)

    @asyncop.reconciler(Secret)
    async def idle(obj: Secret, ctx: asyncop.Context) -> None: ...

    api.create("a")
    async with operating(kubeconfig, api.namespace, busy, idle) as manager:
        await asyncio.wait_for(running.wait(), 10)
        manager.stop()
        await asyncio.sleep(0.3)
        release.set()
    assert ended == ["a"]
