"""asyncop: an asyncio controller for Kubernetes, and the framework to write such controllers.

Every public name is here; each is imported when it is first used, so that `asyncop --help` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncop.api.duration import Duration
    from asyncop.api.errors import (
        AlreadyExistsError,
        ApiError,
        AsyncopError,
        ConfigError,
        ConflictError,
        DecodeError,
        ForbiddenError,
        GoneError,
        InvalidError,
        LeaseLostError,
        NotFoundError,
        PermanentError,
        ServerError,
        TemporaryError,
        TooManyRequestsError,
        TransportError,
        UnauthorizedError,
    )
    from asyncop.api.meta import (
        Condition,
        IntOrString,
        LabelSelector,
        MicroTime,
        ObjectMeta,
        OwnerReference,
        Quantity,
    )
    from asyncop.api.object import Object
    from asyncop.api.request import Request, Result
    from asyncop.api.selectors import label_matcher
    from asyncop.api.struct import Struct, field
    from asyncop.api.untyped import UntypedObject
    from asyncop.cache.view import StoreView
    from asyncop.client import Client, connect
    from asyncop.controller import (
        Context,
        Declarations,
        MapContext,
        Predicate,
        Reconciler,
        Task,
        annotations_changed,
        collecting,
        generation_changed,
        labels_changed,
        owns,
        read,
        reconciler,
        task,
        watch,
    )
    from asyncop.manager import LeaderElectionOptions, Manager, ManagerOptions

__version__ = "0.1.0"

_MODULES = {
    "asyncop.api.duration": ("Duration",),
    "asyncop.api.errors": (
        "AlreadyExistsError",
        "ApiError",
        "AsyncopError",
        "ConfigError",
        "ConflictError",
        "DecodeError",
        "ForbiddenError",
        "GoneError",
        "InvalidError",
        "LeaseLostError",
        "NotFoundError",
        "PermanentError",
        "ServerError",
        "TemporaryError",
        "TooManyRequestsError",
        "TransportError",
        "UnauthorizedError",
    ),
    "asyncop.api.meta": (
        "Condition",
        "IntOrString",
        "LabelSelector",
        "MicroTime",
        "ObjectMeta",
        "OwnerReference",
        "Quantity",
    ),
    "asyncop.api.object": ("Object",),
    "asyncop.api.request": ("Request", "Result"),
    "asyncop.api.selectors": ("label_matcher",),
    "asyncop.api.struct": ("Struct", "field"),
    "asyncop.api.untyped": ("UntypedObject",),
    "asyncop.cache.view": ("StoreView",),
    "asyncop.client": ("Client", "connect"),
    "asyncop.controller": (
        "Context",
        "Declarations",
        "MapContext",
        "Predicate",
        "Reconciler",
        "Task",
        "annotations_changed",
        "collecting",
        "generation_changed",
        "labels_changed",
        "owns",
        "read",
        "reconciler",
        "task",
        "watch",
    ),
    "asyncop.manager": ("LeaderElectionOptions", "Manager", "ManagerOptions"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "AsyncopError",
    "Client",
    "Condition",
    "ConfigError",
    "ConflictError",
    "Context",
    "Declarations",
    "DecodeError",
    "Duration",
    "ForbiddenError",
    "GoneError",
    "IntOrString",
    "InvalidError",
    "LabelSelector",
    "LeaderElectionOptions",
    "LeaseLostError",
    "Manager",
    "ManagerOptions",
    "MapContext",
    "MicroTime",
    "NotFoundError",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "PermanentError",
    "Predicate",
    "Quantity",
    "Reconciler",
    "Request",
    "Result",
    "ServerError",
    "StoreView",
    "Struct",
    "Task",
    "TemporaryError",
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "UntypedObject",
    "__version__",
    "annotations_changed",
    "collecting",
    "connect",
    "field",
    "generation_changed",
    "label_matcher",
    "labels_changed",
    "owns",
    "read",
    "reconciler",
    "task",
    "watch",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
