"""Eviction: a deletion that PodDisruptionBudgets may refuse, by the numbers their status states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncop.testing.deletion import delete
from asyncop.testing.managed import now
from asyncop.testing.objects import Intent, Objects, Target
from asyncop.testing.refusals import RefusedError, bad_request

if TYPE_CHECKING:
    from asyncop.testing.schema import Obj


def evict(objects: Objects, target: Target, eviction: Obj, intent: Intent) -> Obj:
    """Delete the Pod if its budget allows; takes one disruption from the budget.

    Raises:
        RefusedError: 429, the budget is spent or not observed yet; 500, more than one budget covers the Pod.
    """
    given = (eviction.get("metadata") or {}).get("name", target.name)
    if given != target.name:
        raise bad_request(f"name in URL does not match name in Eviction object: {target.name} != {given}")
    pod = Target(target.kind, target.namespace, target.name)
    obj = objects.read(pod)
    options = eviction.get("deleteOptions") or {}
    dry_run = intent.dry_run or options.get("dryRun") == ["All"]
    waiting = obj["metadata"].get("deletionTimestamp") or obj["status"].get("phase") in (
        "Succeeded",
        "Failed",
        "Pending",
    )
    if not waiting:
        _spend(objects, pod, obj, dry_run=dry_run)
    if not dry_run:
        _mark(objects, pod)
    delete(objects, pod, options, Intent(intent.manager, dry_run))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _mark(objects: Objects, pod: Target) -> None:
    """Say in the Pod why it goes, before it goes."""
    obj = objects.read(pod)
    condition = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now()}
    condition |= {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    others = [found for found in obj["status"].get("conditions") or () if found["type"] != "DisruptionTarget"]
    obj["status"]["conditions"] = [*others, condition]
    objects.put(pod, obj)


def _is_ready(obj: Obj) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in obj["status"].get("conditions") or ()
    )


def _spend(objects: Objects, pod: Target, obj: Obj, *, dry_run: bool) -> None:
    budgets = _budgets(objects, pod, obj["metadata"].get("labels") or {})
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise RefusedError(500, "InternalError", text)
    for target, budget in budgets:
        status = budget["status"]
        is_healthy = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
        if not _is_ready(obj) and is_healthy and _is_observed(budget):
            continue  # takes no healthy Pod away
        _check(budget)
        if dry_run:
            continue
        allowed = Target(target.kind, target.namespace, target.name, "status")
        objects.update(allowed, lambda obj: _spent(obj, pod.name), Intent("kube-apiserver"))


def _spent(budget: Obj, pod: str) -> Obj:
    status = budget["status"]
    status["disruptionsAllowed"] -= 1
    status.setdefault("disruptedPods", {})[pod] = now()
    if not status["disruptionsAllowed"]:
        condition = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
        condition |= {"lastTransitionTime": now(), "observedGeneration": status.get("observedGeneration", 0)}
        others = [found for found in status.get("conditions") or () if found["type"] != "DisruptionAllowed"]
        status["conditions"] = [*others, condition]
    return budget


def _budgets(objects: Objects, pod: Target, labels: dict[str, str]) -> list[tuple[Target, Obj]]:
    kind = objects.catalog.find("policy", "v1", "poddisruptionbudgets")
    found = []
    for stored in objects.collection(kind).objects.values():
        namespace, _, name = stored.key.partition("/")
        budget = stored.decode()
        if namespace == pod.namespace and _selects(budget["spec"].get("selector"), labels):
            found.append((Target(kind, namespace, name), budget))
    return found


def _selects(selector: Obj | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    return all(_holds(term, labels) for term in selector.get("matchExpressions") or ())


def _holds(term: Obj, labels: dict[str, str]) -> bool:
    value, values = labels.get(term["key"]), term.get("values") or ()
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[str(term["operator"])]


def _is_observed(budget: Obj) -> bool:
    return bool(budget["status"].get("observedGeneration", 0) >= budget["metadata"].get("generation", 0))


def _check(budget: Obj) -> None:
    name, status = budget["metadata"]["name"], budget["status"]
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    if not _is_observed(budget):
        message = f"The disruption budget {name} is still being processed by the server."
        cause = {"reason": "DisruptionBudget", "message": message}
        raise RefusedError(429, "TooManyRequests", text, {"causes": [cause], "retryAfterSeconds": 10})
    if status.get("disruptionsAllowed", 0) <= 0:
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        message = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        if healthy > wanted:
            message = f"The disruption budget {name} does not allow evicting pods currently"
        raise RefusedError(
            429, "TooManyRequests", text, {"causes": [{"reason": "DisruptionBudget", "message": message}]}
        )
