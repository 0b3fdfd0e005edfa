"""The controller: looks at every Terminating Pod of a suspect node and deletes it by force, or says why not.

Order of one run: rules on what is cached, the Lease, the breakers, the mode; then Node, Lease and Pod are read anew
from the server and judged once more; then the delete, with the Pod's uid and resourceVersion as preconditions. So a
kubelet that comes back at any moment, or a Pod reborn under the name, wins the race: the server answers 409 or 404.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

import asyncop
from asyncop import Declarations, collecting, metrics
from asyncop.operators.stuckPods.breakers import RECHECK, Breakers
from asyncop.operators.stuckPods.evidence import MARGIN, LeaseObserver
from asyncop.operators.stuckPods.objects import LEASE_NAMESPACE, Lease, Node, Pod, Taint
from asyncop.operators.stuckPods.rules import Reason, Refusal, refusal

if TYPE_CHECKING:
    from asyncop.operators.stuckPods.options import StuckPodsOptions

log = structlog.get_logger("asyncop.stuckPods")

RETRY = 5.0  # seconds after a read or a deletion that failed
JUDGE_AGAIN = 1.0  # seconds after a lost race; the change itself triggers too

_decisions = metrics.counter(
    "asyncop_stuck_pods_decisions_total",
    "Decisions about Terminating Pods on suspect nodes, by reason; one a Pod and reason",
    ["reason"],
)


def build(options: StuckPodsOptions) -> Declarations:
    """The reconciler and the task of stuckPods."""
    options.check()
    stuck_pods = StuckPods(options)
    with collecting() as declarations:
        asyncop.reconciler(
            Pod,
            name="stuckPods",
            labels=options.selector or None,
            namespaces=options.namespaces or None,
            indexes={"node": terminating_by_node},
            sources=[asyncop.watch(Node, pods_of_node)],
            uses={
                Pod: "get delete" if options.mode == "delete" else "get",
                Node: "get",
                Lease: f"get in {LEASE_NAMESPACE}",
            },
        )(stuck_pods.reconcile)
        asyncop.task(name="stuckPods breakers")(stuck_pods.keep_breakers)
    return declarations


def terminating_by_node(pod: Pod) -> list[str]:
    """Index: the Terminating Pods of a node; nobody asks for the others."""
    return [pod.spec.node_name] if pod.metadata.deletion_timestamp and pod.spec.node_name else []


def pods_of_node(new: Node | None, old: Node | None, ctx: asyncop.MapContext) -> list[Pod]:
    """A Node changed: the Terminating Pods on it are judged again."""
    node = new or old
    return ctx.store(Pod).by_index("node", node.metadata.name) if node else []


class StuckPods:
    """What one process knows and has done; everything else is read from the cluster."""

    def __init__(self, options: StuckPodsOptions) -> None:
        self._options = options
        self._selects = asyncop.label_matcher(options.selector)
        self._leases = LeaseObserver(options.lease_window)
        self._breakers = Breakers(options)
        # One deletion at a time, each after a look of its own: a node that comes back after the first loses no other.
        self._deleting = asyncio.Lock()

    async def keep_breakers(self) -> None:
        """Runs from our start, or from winning the lead, to its end: begins with the freeze, closes what is over."""
        loop = asyncio.get_running_loop()
        self._breakers.lead_began(loop.time())
        try:
            while True:
                await asyncio.sleep(RECHECK)
                self._breakers.close_unasked(loop.time())
        finally:
            self._breakers.close()

    async def reconcile(self, pod: Pod, ctx: asyncop.Context) -> asyncop.Result | None:
        """Judge one Pod; act, or say why not."""
        if pod.metadata.deletion_timestamp is None:
            return None
        node = ctx.store(Node).get(pod.spec.node_name)
        taints = node.matching_taints(self._options.taints) if node else ()
        if node is None or not taints:
            return None  # not ours: no suspect node, or its object is gone, which the built-in collector handles
        try:
            verdict = await self._verdict(pod, node, taints, ctx)
        except (asyncop.ApiError, asyncop.TransportError, asyncop.DecodeError) as error:
            verdict = Refusal(Reason.READ_FAILED, f"a read failed, so nothing is deleted: {error}", RETRY)
        if verdict is None:
            return None
        self._explain(pod, verdict, ctx)
        return asyncop.Result(verdict.again)

    async def _verdict(self, pod: Pod, node: Node, taints: tuple[Taint, ...], ctx: asyncop.Context) -> Refusal | None:
        """None once the Pod is gone or was deleted."""
        against = await self._against(pod, node, taints, ctx, anew=False)
        if against is None:
            against = self._breaker(ctx)
        if against is None and self._options.mode == "report":
            against = Refusal(Reason.REPORT_ONLY, f"node {node.metadata.name} is dead; mode: delete would do it")
        if against is not None:
            return against
        async with self._deleting:
            return self._breaker(ctx) or await self._delete(pod, ctx)

    async def _against(
        self, pod: Pod, node: Node, taints: tuple[Taint, ...], ctx: asyncop.Context, *, anew: bool
    ) -> Refusal | None:
        """What speaks against it: the rules, then the Lease."""
        against = refusal(pod, node, taints, self._options, datetime.now(UTC))
        if against is not None:
            if against.reason is Reason.NODE_READY:
                self._leases.forget(node.metadata.name)
            return against if against.again is None else against._replace(again=against.again + MARGIN)
        return await self._leases.refusal(node.metadata.name, ctx, anew=anew)

    def _breaker(self, ctx: asyncop.Context) -> Refusal | None:
        nodes = ctx.store(Node).list()
        unhealthy = sum(node.ready.status != "True" for node in nodes)
        return self._breakers.refusal(ctx.now(), unhealthy, len(nodes))

    async def _delete(self, cached: Pod, ctx: asyncop.Context) -> Refusal | None:
        """Read everything anew, judge once more, delete."""
        try:
            node = await ctx.client.get(Node, cached.spec.node_name)
            pod = await ctx.client.get(Pod, cached.metadata.name, namespace=cached.metadata.namespace)
        except asyncop.NotFoundError:
            return None  # the Pod is gone, or the Node is, which the built-in collector handles
        taints = node.matching_taints(self._options.taints)
        if pod.metadata.uid != cached.metadata.uid or not self._is_candidate(pod) or not taints:
            return Refusal(Reason.CHANGED, "the Pod or its node has changed meanwhile", JUDGE_AGAIN)
        against = await self._against(pod, node, taints, ctx, anew=True)
        if against is not None:
            return against
        return await self._send(pod, ctx)

    def _is_candidate(self, pod: Pod) -> bool:
        """Whether a Pod just read is still one to act on: a watch that lags may not know that it was taken out."""
        metadata = pod.metadata
        is_paused = metadata.annotations.get("asyncop.dev/paused") == "true"
        return metadata.deletion_timestamp is not None and self._selects(metadata.labels) and not is_paused

    async def _send(self, pod: Pod, ctx: asyncop.Context) -> Refusal | None:
        await ctx.require_leadership()
        if not self._breakers.take(ctx.now()):
            return self._breaker(ctx)
        metadata = pod.metadata
        try:
            await ctx.client.delete(pod, grace_period=0, uid=metadata.uid, resource_version=metadata.resource_version)
        except asyncop.NotFoundError:
            return None
        except asyncop.ConflictError:
            self._breakers.give_back()
            return Refusal(Reason.CHANGED, "somebody reported the Pod just before the deletion", JUDGE_AGAIN)
        except asyncop.ApiError as error:
            if error.status < 500:
                self._breakers.give_back()  # surely not done
            return Refusal(Reason.DELETE_FAILED, f"the server refused the deletion: {error}", RETRY)
        except asyncop.TransportError as error:
            return Refusal(Reason.DELETE_FAILED, f"no answer to the deletion, it may yet be done: {error}", RETRY)
        message = f"Force-deleted: node {pod.spec.node_name} is dead (taint, not Ready, Lease did not move)"
        ctx.log.warning("Force-deleted Pod", node=pod.spec.node_name, uid=metadata.uid)
        _decisions.labels(Reason.DELETED).inc()
        ctx.event(Reason.DELETED, message)
        return None

    @staticmethod
    def _explain(pod: Pod, verdict: Refusal, ctx: asyncop.Context) -> None:
        """One Event, one count and one log line for each Pod and reason."""
        told: set[Reason] = ctx.memo.setdefault("told", set())
        if verdict.reason in told:
            return
        told.add(verdict.reason)
        _decisions.labels(verdict.reason).inc()
        ctx.log.info("Did not force-delete Pod", reason=verdict.reason, why=verdict.message, node=pod.spec.node_name)
        kind = "Warning" if verdict.reason in (Reason.HAS_FINALIZER, Reason.BREAKER_OPEN) else "Normal"
        ctx.event(verdict.reason, f"Not force-deleted: {verdict.message}", kind)
