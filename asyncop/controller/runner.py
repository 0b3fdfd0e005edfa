"""One run of one object: finalizers before it, the user's function, the status that it staged after it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import ApiError, ConflictError, LeaseLostError, NotFoundError, TransportError
from asyncop.api.meta import to_wire, without_none
from asyncop.api.untyped import UntypedObject
from asyncop.controller.finalizer import Finalizers, add_finalizer, remove_finalizers
from asyncop.controller.reconcile import Failed, FailedPermanently, LeadLost, Outcome, Succeeded, reconcile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncop.api.resource import Resource
    from asyncop.api.selectors import Matcher
    from asyncop.client import Client
    from asyncop.controller.context import Context
    from asyncop.controller.declaration import Reconciler
    from asyncop.controller.status import StagedStatus

STATUS_TRIES = 3


class Runner:
    """Runs the functions of one declared reconciler. `finalizer` and `matches` count where it has a `finalize`."""

    def __init__(
        self, declared: Reconciler[Any], client: Client, finalizers: Finalizers, finalizer: str, matches: Matcher | None
    ) -> None:
        self._declared, self._client = declared, client
        self._finalizers, self._finalizer, self._matches = finalizers, finalizer, matches
        self._cleaned: set[str] = set()  # uids whose clean-up is done and that haven't been seen to go yet

    async def run(self, obj: Any, resource: Resource, ctx: Context) -> Outcome:
        """Do what the object's state asks for; errors of the server are outcomes too."""
        try:
            finalizers = obj.metadata.finalizers
            if finalizers and (stale := self._finalizers.stale(finalizers)):
                ctx.obj = obj = await remove_finalizers(self._client, obj, stale)
            if obj is None:
                return Succeeded()
            if self._declared.finalize_function is None:
                outcome = await reconcile(self._declared.function, self._declared.timeout, obj, ctx)
            else:
                outcome = await self._step(obj, ctx)
            if ctx.staged is not None:
                await self._write_status(ctx.obj, resource, ctx.staged)
        except LeaseLostError:
            return LeadLost()
        except (ApiError, TransportError) as error:
            return Failed(error)
        return outcome

    async def depart(self, last: Any, ctx: Context) -> Outcome:
        """Tell that an object is no longer there."""
        function = self._declared.gone_function
        return Succeeded() if function is None else await reconcile(function, self._declared.timeout, last, ctx)

    async def _step(self, obj: Any, ctx: Context) -> Outcome:
        """A run where there is a `finalize`."""
        if obj.metadata.deletion_timestamp is not None:
            return await self._finalize(obj, ctx)
        if self._matches is not None and not self._matches(obj.metadata.labels):
            await remove_finalizers(self._client, obj, frozenset({self._finalizer}))  # it has left the selector
            return Succeeded()
        obj = await add_finalizer(self._client, obj, self._finalizer)
        if obj is None:
            return Succeeded()
        ctx.obj = obj
        return await reconcile(self._declared.function, self._declared.timeout, obj, ctx)

    async def _finalize(self, obj: Any, ctx: Context) -> Outcome:
        """Clean up, once as far as we know, then let the object go."""
        function, uid = self._declared.finalize_function, obj.metadata.uid
        if function is None or self._finalizer not in obj.metadata.finalizers:
            return Succeeded()
        if uid not in self._cleaned:
            outcome = await reconcile(function, self._declared.timeout, obj, ctx)
            if isinstance(outcome, FailedPermanently):
                ctx.event("FinalizeFailed", f"{self._declared.name} keeps its finalizer: {outcome.error}", "Warning")
            if not isinstance(outcome, Succeeded) or outcome.requeue_after is not None:
                return outcome
            self._cleaned.add(uid)
        await remove_finalizers(self._client, obj, frozenset({self._finalizer}))
        return Succeeded()

    def forget(self, uid: str) -> None:
        """The object is no longer there."""
        self._cleaned.discard(uid)

    async def _write_status(self, obj: Any, resource: Resource, staged: StagedStatus) -> None:
        """Write what was staged, in at most one patch, if the object doesn't say it already."""
        metadata, now = obj.metadata, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        visible = _visible_status(obj)
        if visible is not None and not staged.patch(visible, metadata.generation, now):
            return
        kind = (resource.group, resource.version, resource.plural)
        for tries_left in reversed(range(STATUS_TRIES)):
            try:
                present = await self._client.get(kind, metadata.name, namespace=metadata.namespace or None)
                patch = staged.patch(present.get("status") or {}, metadata.generation, now)
                if present.metadata.uid != metadata.uid or not patch:
                    return
                body = {"metadata": {"resourceVersion": present.metadata.resource_version}, "status": patch}
                await self._client.patch(present, body, subresource="status")
            except NotFoundError:
                return
            except ConflictError:
                if not tries_left:
                    raise
            else:
                return


def _visible_status(obj: Any) -> Mapping[str, Any] | None:
    """The status as far as the reader's projection shows it; None if it shows none."""
    if isinstance(obj, UntypedObject):
        status: Mapping[str, Any] = obj.get("status") or {}
        return status
    if not hasattr(obj, "status"):
        return None
    shown: Mapping[str, Any] = without_none(to_wire(obj.status)) or {}
    return shown
