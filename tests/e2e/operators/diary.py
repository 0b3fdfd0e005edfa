"""Writes for as long as it leads: a line into each ConfigMap with the label `diary`, five times a second."""

import asyncop


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    """Only its name is of interest."""


@asyncop.reconciler(ConfigMap, labels={"diary": "true"}, uses={ConfigMap: "patch"})
async def write(diary: ConfigMap, ctx: asyncop.Context) -> asyncop.Result:
    await ctx.client.patch(diary, {"data": {"at": f"{ctx.now():.3f}"}})
    return asyncop.Result(requeue_after=0.2)
