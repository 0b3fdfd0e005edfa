"""A typed reconciler on Pods; at its N-th reconcile it reports what the process has used, and ends."""

import os
import sys
from pathlib import Path

import asyncop

sys.path.insert(0, str(Path(__file__).parent))
from usage import report

PODS = int(os.environ["BENCH_PODS"])
seen = 0


class Spec(asyncop.Struct):
    node_name: str | None = None


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    spec: Spec = Spec()


@asyncop.reconciler(Pod)
async def pods(pod: Pod, ctx: asyncop.Context) -> None:
    global seen
    seen += 1
    if seen == PODS:
        report(seen)
        os._exit(0)
