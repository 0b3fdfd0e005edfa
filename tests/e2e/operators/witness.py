"""Notes the version of every ConfigMap that it reconciles, one line each, in the file that SEEN names."""

import os

import asyncop

SEEN = open(os.environ["SEEN"], "a", buffering=1)  # noqa: SIM115 - for the operator's life


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    """All of it is of interest, but only its data change."""

    data: dict[str, str] = asyncop.field(default_factory=dict)


@asyncop.reconciler(ConfigMap)
async def see(obj: ConfigMap, ctx: asyncop.Context) -> None:
    SEEN.write(f"{obj.metadata.name} {obj.metadata.resource_version}\n")
