"""What is left of the past after a compaction: for Events, which kube-apiserver reads from etcd without a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.apiserver.cases import case

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller


@case
def the_past_before_a_compaction_is_gone(c: Caller) -> None:
    events = c.core("events")
    for name in "abcd":
        regarding = {"kind": "Pod", "name": "a", "namespace": c.namespace}
        c.post(events, {"metadata": {"name": name}, "involvedObject": regarding, "reason": "R"}, quiet=True)
    page = c.get(events, limit=2)
    for name in "ab":
        c.delete(c.core("events", name), quiet=True)
    c.compact()
    gone = c.get(events, **{"limit": 2, "continue": page.metadata["continue"]})
    c.get(events, **{"limit": 2, "continue": gone.metadata["continue"]})
    c.get(events, resourceVersion=page.version, resourceVersionMatch="Exact")
    c.get(events, resourceVersion=page.version, resourceVersionMatch="NotOlderThan")
    with c.watch(events, resourceVersion=page.version) as watch:
        watch.rest()
