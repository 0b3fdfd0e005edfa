import asyncop


class PodSpec(asyncop.Struct):
    node_name: str = ""


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    spec: PodSpec = PodSpec()


class Node(asyncop.Object, api_version="v1", kind="Node"):
    pass  # nothing declared: only metadata is watched


def pods_on(new: Node | None, old: Node | None, ctx: asyncop.MapContext) -> list[Pod]:
    node = new or old  # new: it is there; old: it was
    return ctx.store(Pod).by_index("node", node.metadata.name) if node else []


@asyncop.reconciler(
    Pod,
    indexes={"node": lambda pod: [pod.spec.node_name] if pod.spec.node_name else []},
    sources=[asyncop.watch(Node, pods_on)],
    uses={Pod: "patch"},
)
async def label_pods(pod: Pod, ctx: asyncop.Context) -> None:
    node = ctx.store(Node).get(pod.spec.node_name)
    zone = node.metadata.labels.get("topology.kubernetes.io/zone") if node else None
    if zone and pod.metadata.labels.get("zone") != zone:
        await ctx.client.patch(pod, {"metadata": {"labels": {"zone": zone}}})
        ctx.log.info("Labelled Pod", zone=zone)
