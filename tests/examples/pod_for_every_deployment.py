"""Look, compare, mend, for ever: a Pod of the same name for every Deployment. No CRD, no loop of one's own."""

import asyncop


class Deployment(asyncop.Object, api_version="apps/v1", kind="Deployment"):
    pass  # only its metadata is of interest, so only that is watched


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    pass


def deployment_of(new: Pod | None, old: Pod | None, ctx: asyncop.MapContext) -> list[asyncop.ObjectMeta]:
    pod = new or old
    return [pod.metadata] if pod else []  # same namespace, same name


@asyncop.reconciler(Deployment, sources=[asyncop.watch(Pod, deployment_of)], uses={Pod: "create"})
async def pod_for_every_deployment(deployment: Deployment, ctx: asyncop.Context) -> None:
    if deployment.metadata.deletion_timestamp or ctx.store(Pod).get(deployment.metadata.name):
        return
    name, namespace = deployment.metadata.name, deployment.metadata.namespace
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "while :; do echo tick; sleep 5; done"]}
    await ctx.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "spec": {"containers": [container]},
        }
    )
    ctx.event("Created", f"Created Pod {name}")
