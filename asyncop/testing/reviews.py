"""SelfSubjectAccessReview: everything is allowed, but for what a fault forbids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncop.testing.refusals import Who, invalid, required

if TYPE_CHECKING:
    from asyncop.testing.faults import Faults
    from asyncop.testing.schema import Obj


def review(obj: Obj, faults: Faults) -> Obj:
    """The review with its answer.

    Raises:
        RefusedError: 422, it asks about nothing.
    """
    spec = obj.get("spec") or {}
    wanted = spec.get("resourceAttributes")
    if wanted is None and spec.get("nonResourceAttributes") is None:
        who = Who("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
        raise invalid(
            who,
            [
                required(
                    "spec.resourceAttributes",
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )
            ],
        )
    is_allowed = wanted is None or not faults.forbids(wanted.get("resource", ""), wanted.get("group", ""))
    status: Obj = {"allowed": is_allowed}
    if not is_allowed:
        status["reason"] = "a fault forbids it"
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": obj.get("metadata") or {},
        "spec": spec,
        "status": status,
    }
