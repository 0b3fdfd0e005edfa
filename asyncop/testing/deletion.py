"""Deletion of one object: preconditions, grace, finalizers, what is to become of dependents.

Who has finalizers or grace left stays, marked; the last update that clears them takes the object out (`objects.py`).
What propagation means for others is the collector's.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from asyncop.testing.refusals import Fault, Who, conflict, invalid
from asyncop.testing.validation import refuse_namespace_deletion

if TYPE_CHECKING:
    from asyncop.testing.objects import Intent, Objects, Target
    from asyncop.testing.schema import Obj

_ANSWERED_WITH_OBJECT = frozenset(("Pod", "Service", "ServiceAccount", "PersistentVolumeClaim", "Namespace"))
_JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_POLICIES = ("Foreground", "Background", "Orphan")


def delete(objects: Objects, target: Target, options: Obj, intent: Intent) -> Obj:
    """Delete the object or mark it for deletion; the answer is the object, or a Status when it is gone.

    Raises:
        RefusedError: 404, 409 for preconditions, 422 for options that make no sense.
    """
    _check_options(options)
    obj = objects.read(target)
    if target.kind.kind == "Job" and target.kind.custom is None and _policy(options) is None:
        intent.warnings.append(_JOB_WARNING)
        options = {**options, "propagationPolicy": "Orphan"}
    _check_preconditions(target, obj, options.get("preconditions") or {})
    if target.kind.kind == "Namespace" and target.kind.custom is None:
        refuse_namespace_deletion(target.name)
    dry_run = intent.dry_run or options.get("dryRun") == ["All"]
    before = obj["metadata"].get("deletionTimestamp"), obj["metadata"].get("deletionGracePeriodSeconds")
    changed = _set_finalizers(obj, _policy(options))
    grace = _grace(target, obj, options)
    stays = bool(obj["metadata"].get("finalizers")) or grace > 0 or _keeps_namespace(target, obj)
    if stays or _is_pod(target):
        _mark(target, obj, grace)
        after = obj["metadata"]["deletionTimestamp"], obj["metadata"].get("deletionGracePeriodSeconds")
        if not dry_run and (changed or before != after):
            obj = objects.put(target, obj)
        if stays:
            return obj
    if not dry_run:
        obj = objects.remove(target)
    if target.kind.kind in _ANSWERED_WITH_OBJECT and target.kind.custom is None:
        return obj
    details = target.who.details(uid=obj["metadata"]["uid"])
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _check_options(options: Obj) -> None:
    policy, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    who = Who("meta.k8s.io", "", "DeleteOptions")
    if policy is not None and orphans is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise invalid(who, [Fault("propagationPolicy", "FieldValueInvalid", text)])
    if policy is not None and policy not in _POLICIES:
        choices = ", ".join(f'"{choice}"' for choice in (*_POLICIES, "nil"))
        text = f'Unsupported value: "{policy}": supported values: {choices}'
        raise invalid(who, [Fault("propagationPolicy", "FieldValueNotSupported", text)])


def _check_preconditions(target: Target, obj: Obj, preconditions: Obj) -> None:
    metadata = obj["metadata"]
    for name, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(name)
        if wanted is not None and wanted != metadata[name]:
            why = (
                f"the {shown} in the precondition ({wanted}) does not match the {shown} in record ({metadata[name]}). "
                "The object might have been deleted and then recreated"
            )
            if name == "resourceVersion":
                why = why.replace("deleted and then recreated", "modified")
            if target.kind.kind == "Namespace" and target.kind.custom is None:
                why = (
                    f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {metadata[name]}"
                )
                raise conflict(target.who, why)
            raise conflict(target.who._replace(plural=target.kind.kind), why)


def _policy(options: Obj) -> str | None:
    orphans = options.get("orphanDependents")
    if orphans is not None:
        return "Orphan" if orphans else "Background"
    return options.get("propagationPolicy")


def _set_finalizers(obj: Obj, policy: str | None) -> bool:
    finalizers = list(obj["metadata"].get("finalizers") or ())
    if policy is None:
        return False
    kept = [name for name in finalizers if name not in ("orphan", "foregroundDeletion")]
    wanted = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(policy, [])
    result = kept + wanted
    if result == finalizers:
        return False
    obj["metadata"]["finalizers"] = result
    return True


def _grace(target: Target, obj: Obj, options: Obj) -> int:
    if not _is_pod(target):
        return 0
    spec, wanted = obj["spec"], options.get("gracePeriodSeconds")
    if wanted is None:
        wanted = spec.get("terminationGracePeriodSeconds", 30)
    wanted = max(wanted, 1) if wanted < 0 else wanted
    if not spec.get("nodeName") or obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    before: Any = obj["metadata"].get("deletionGracePeriodSeconds")
    return int(wanted if before is None else min(before, wanted))


def _is_pod(target: Target) -> bool:
    """Pods are marked even when they go at once: two events a deletion."""
    return target.kind.kind == "Pod" and target.kind.custom is None


def _keeps_namespace(target: Target, obj: Obj) -> bool:
    is_namespace = target.kind.kind == "Namespace" and target.kind.custom is None
    return is_namespace and bool((obj.get("spec") or {}).get("finalizers"))


def _mark(target: Target, obj: Obj, grace: int) -> None:
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds", 0) <= grace:
        return  # only ever sooner
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=grace)
    metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata["deletionGracePeriodSeconds"] = grace
    if target.kind.kind == "Namespace" and target.kind.custom is None:
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        del metadata["deletionGracePeriodSeconds"]
