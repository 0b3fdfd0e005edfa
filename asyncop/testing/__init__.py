"""A verified fake of the Kubernetes API for tests and demos: `ApiServer`, real HTTP, everything in memory.

    async with ApiServer() as server:
        connect(server.write_kubeconfig(path)) …
        server.faults.expire_versions("pods")

It serves the built-in kinds that operators meet most and every CustomResourceDefinition that is POSTed, with the
semantics of kube-apiserver 1.36: versions, watches, patches, server-side apply, finalizers, grace, garbage collection.
The same contract tests run against it and against a real kube-apiserver, and a difference fails. `Faults` is what can
be made to go wrong. It keeps nothing and lets everybody do everything: never use it for anything else.

What a real server has and this one knowingly hasn't: protobuf and table answers, OpenAPI documents, logs, exec and
proxies, authorization, webhooks, quotas, validation beyond what clients meet, CEL rules, conversion between versions
that differ by more than their name, Events that expire, and kubelets: Pods that were bound wait for whoever plays one.

Independent of asyncop's client and engine on purpose: it is what they are tested against.
"""

from asyncop.testing.faults import Faults
from asyncop.testing.server import ApiServer

__all__ = ["ApiServer", "Faults"]
