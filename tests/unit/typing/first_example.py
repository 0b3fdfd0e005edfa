"""The public surface as a user types it: mypy and pyright both check this file, and it must stay clean."""

from __future__ import annotations

from typing import Annotated, assert_type

import msgspec

import asyncop


class Options(asyncop.Struct):
    label: str = "yes"
    every: asyncop.Duration = asyncop.Duration(60)


class PodSpec(asyncop.Struct):
    node_name: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    spec: PodSpec = PodSpec()


class Node(asyncop.Object, api_version="v1", kind="Node"):
    pass


def on_node(new: Node | None, old: Node | None, ctx: asyncop.MapContext) -> list[Pod]:
    node = new or old
    return ctx.store(Pod).by_index("node", node.metadata.name) if node else []


def node_of(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


@asyncop.reconciler(
    Pod,
    labels={"app": "web"},
    indexes={"node": node_of},
    sources=[asyncop.watch(Node, on_node), asyncop.read("leases.coordination.k8s.io", namespaces=["kube-node-lease"])],
    uses={Pod: "patch"},
    options=Options,
    predicates=[asyncop.generation_changed | asyncop.labels_changed],
)
async def web_pods(pod: Pod, ctx: asyncop.Context) -> asyncop.Result | None:
    node = ctx.store(Node).get(pod.spec.node_name or "")
    assert_type(node, Node | None)
    assert_type(ctx.store(Pod).list(), list[Pod])
    assert_type(await ctx.client.get(Node, "a"), Node)
    assert_type(await ctx.client.get("nodes", "a"), asyncop.UntypedObject)
    patched = await ctx.client.patch(pod, {"metadata": {"labels": {"seen": "yes"}}})
    assert_type(patched, Pod)
    ctx.log.info("Labelled Pod", node=node and node.metadata.name)
    return asyncop.Result(requeue_after=60)


@asyncop.reconciler("apps/v1/deployments")
async def deployments(obj: asyncop.UntypedObject, ctx: asyncop.Context) -> None:
    ctx.event("Seen", str(obj["spec"]["replicas"]))


@asyncop.task
async def for_ever() -> None:
    web_pods.enqueue("default", "web")


@asyncop.task(leader=False)
async def on_every_replica() -> None: ...


def build() -> Pod:
    return Pod(metadata=asyncop.ObjectMeta(name="a", labels={"app": "web"}), spec=PodSpec(node_name="n"))
