"""stuckPods: Pods that are Terminating on a dead node are force-deleted once the node is proven dead.

A StatefulSet starts no replacement while the old Pod's object exists, and only the node's kubelet may confirm its end.
If the node is dead that never happens. Whoever deletes the object by force asserts that the old process is gone; this
controller asserts it only on evidence, and says why whenever it does not act. README.md beside this file has the rules
and the runbooks.
"""

from asyncop.operators.stuckPods.controller import build
from asyncop.operators.stuckPods.options import StuckPodsOptions

__all__ = ["StuckPodsOptions", "build"]
