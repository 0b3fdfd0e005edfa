"""Takes two seconds for each ConfigMap and then has a lot to tell; notes in the file NOTED when it began and ended."""

import asyncio
import os
import time

import asyncop

NOTED = open(os.environ["NOTED"], "a", buffering=1)  # noqa: SIM115 - for the operator's life
EVENTS = 20


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    """Only its name is of interest."""


@asyncop.reconciler(ConfigMap, workers=8)
async def dawdle(obj: ConfigMap, ctx: asyncop.Context) -> None:
    NOTED.write(f"begin {obj.metadata.name} {time.time()}\n")
    await asyncio.sleep(2)
    for number in range(EVENTS):
        ctx.event("Dawdled", f"for the {number + 1}. time")
    NOTED.write(f"end {obj.metadata.name} {time.time()}\n")
