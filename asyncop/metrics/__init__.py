"""The metric objects and their text form; the only package that imports prometheus_client.

One registry of our own, made when this package is imported, so that a program that embeds asyncop decides itself what
becomes of it. Names, labels and buckets are those of controller-runtime and client-go, so that their dashboards fit.
The modules here are one subject each; `counter`, `gauge` and `histogram` are for controllers' own metrics. Serving them
is the manager's work.

Metrics belong to the event loop's thread: `render` reads them there, and what another thread counts may be lost (not so
for those of `counter`, `gauge` and `histogram`, which lock).
"""

from prometheus_client import Counter, Gauge, Histogram

from asyncop.metrics import process
from asyncop.metrics.registry import counter, gauge, histogram, render

__all__ = ["Counter", "Gauge", "Histogram", "counter", "gauge", "histogram", "process", "render"]
