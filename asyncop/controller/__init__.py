"""Controllers: what a user declares, and how one declared reconciler runs."""

from asyncop.controller.context import Context, MapContext
from asyncop.controller.controller import Controller
from asyncop.controller.declaration import Declarations, Reconciler, Task, collecting, reconciler, task
from asyncop.controller.predicate import Predicate, annotations_changed, generation_changed, labels_changed
from asyncop.controller.recorder import Recorder
from asyncop.controller.source import Source, owns, read, watch

__all__ = [
    "Context",
    "Controller",
    "Declarations",
    "MapContext",
    "Predicate",
    "Reconciler",
    "Recorder",
    "Source",
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
]
