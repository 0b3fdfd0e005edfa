"""A real Kubernetes for the tests, on one Linux machine and without containers around it.

The pieces are the real ones: etcd, kube-apiserver and, where nodes are asked for, kube-controller-manager,
kube-scheduler and nodes that each run their own containerd, kubelet and kube-proxy inside kernel namespaces, so that
a node can die or be cut off as a machine would. Everything is compiled once from Go modules into a cache that
outlives the checkout.

Promises: only the standard library is needed, so the package runs before any virtual environment exists; whatever a
run creates is recorded in its state directory before or as it is created, so that a later run can clean up after one
that was killed; nothing is reachable from outside this machine.

Not here: cluster DNS, volumes and a load balancer. `python -m tests.testbed --help` is the command line, and
`tests/conftest.py` and `tests/e2e/conftest.py` offer the same as pytest fixtures.
"""
