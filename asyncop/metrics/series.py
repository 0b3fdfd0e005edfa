"""Lean series for what is counted in every reconcile: plain numbers, read when somebody scrapes.

prometheus_client's own objects lock and format for every number: one reconcile touches eight, which costs about 3 us
there and 0.5 us here. In exchange these may be changed from the event loop's thread only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from prometheus_client import Metric

from asyncop.metrics.registry import REGISTRY

Kind = Literal["counter", "gauge"]


class Value:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add to it."""
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        """Take from it; gauges only."""
        self.value -= amount

    def set(self, value: float) -> None:
        """Replace it; gauges only."""
        self.value = value


class Distribution:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class _Named:
    """What every collector here has: a name, a type, the labels' names. Registered for the life of the process."""

    def __init__(self, kind: str, name: str, doc: str, labels: tuple[str, ...]) -> None:
        self._kind, self._doc, self._labels = kind, doc, labels
        self._name = name.removesuffix("_total") if kind == "counter" else name
        self._sample_name = f"{self._name}_total" if kind == "counter" else name
        REGISTRY.register(self)

    def describe(self) -> Iterable[Metric]:
        """What the registry refuses to take twice."""
        return [self._metric()]

    def collect(self) -> Iterable[Metric]:
        """Read every series."""
        metric = self._metric()
        self._read(metric)
        return [metric]

    def _metric(self) -> Metric:
        return Metric(self._name, self._doc, self._kind)

    def _labelled(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self._labels, values, strict=True))

    def _read(self, metric: Metric) -> None:
        raise NotImplementedError


class Values(_Named):
    """A counter or gauge fed by `inc` and `set`."""

    def __init__(self, kind: Kind, name: str, doc: str, labels: tuple[str, ...]) -> None:
        super().__init__(kind, name, doc, labels)
        self._series: dict[tuple[str, ...], Value] = {}

    def labels(self, *values: str) -> Value:
        """The series of these labels, made with 0 when it is first asked for. Keep it where it is used often."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Value()
        return series

    def _read(self, metric: Metric) -> None:
        for values, series in self._series.items():
            metric.add_sample(self._sample_name, self._labelled(values), series.value)


class Distributions(_Named):
    """A histogram fed by `observe`."""

    def __init__(self, name: str, doc: str, labels: tuple[str, ...], *, bounds: Sequence[float]) -> None:
        super().__init__("histogram", name, doc, labels)
        self._bounds = tuple(bounds)
        self._edges = [*(str(bound) for bound in self._bounds), "+Inf"]
        self._series: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """The series of these labels, made empty when it is first asked for. Keep it where it is used often."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Distribution(self._bounds)
        return series

    def _read(self, metric: Metric) -> None:
        for values, series in self._series.items():
            labels = self._labelled(values)
            so_far = 0
            for edge, count in zip(self._edges, series.counts, strict=True):
                so_far += count
                metric.add_sample(f"{self._name}_bucket", labels | {"le": edge}, so_far)
            metric.add_sample(f"{self._name}_count", labels, so_far)
            metric.add_sample(f"{self._name}_sum", labels, series.total)


Read = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""What an owner says when asked: its series now, as (label values, number)."""


class Readings(_Named):
    """A counter or gauge that is asked for when somebody scrapes.

    Each owner answers under a key of its own. A new owner of a key replaces the old one (a second manager in one
    process, after the first); answers of several keys with the same labels are added up.
    """

    def __init__(self, kind: Kind, name: str, doc: str, labels: tuple[str, ...]) -> None:
        super().__init__(kind, name, doc, labels)
        self._owners: dict[object, Read] = {}

    def watch(self, key: object, read: Read) -> None:
        """Ask `read` from now on."""
        self._owners[key] = read

    def unwatch(self, key: object, read: Read) -> None:
        """Ask `read` no more; nothing happens if another owner has taken the key over."""
        if self._owners.get(key) is read:
            del self._owners[key]

    def _read(self, metric: Metric) -> None:
        sums: dict[tuple[str, ...], float] = {}
        for read in self._owners.values():
            for values, number in read():
                sums[values] = sums.get(values, 0.0) + number
        for values, number in sums.items():
            metric.add_sample(self._sample_name, self._labelled(values), number)
