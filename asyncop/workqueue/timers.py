"""One timer a key on a single event-loop timer, however many keys wait."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """Calls `due(key)` when a key's time has come.

    Setting a key again replaces its time. Outdated heap entries are dropped when they surface, and the heap is rebuilt
    once most of it is outdated, so keys that are set again and again cost no memory.
    """

    def __init__(self, due: Callable[[KeyT], None]) -> None:
        self._due = due
        self._current: dict[KeyT, tuple[float, int]] = {}  # time and serial of the entry that counts
        self._heap: list[tuple[float, int, KeyT]] = []
        self._serial = 0  # keeps entries of one moment in order, and keys from being compared
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._current)

    @property
    def entries(self) -> int:
        """Heap entries, outdated ones included."""
        return len(self._heap)

    def get(self, key: KeyT) -> float | None:
        """The loop time at which the key is due, if it waits."""
        current = self._current.get(key)
        return current[0] if current else None

    def set(self, key: KeyT, when: float) -> None:
        """Let `key` be due at the loop time `when`, and at no other time."""
        self._serial += 1
        self._current[key] = (when, self._serial)
        heapq.heappush(self._heap, (when, self._serial, key))
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._current):
            self._rebuild()
        if when < self._armed_for:
            self._arm(when)

    def cancel(self, key: KeyT) -> None:
        """Forget the key's time; nothing happens if it has none."""
        self._current.pop(key, None)

    def close(self) -> None:
        """Forget all keys."""
        self._current.clear()
        self._heap.clear()
        if self._armed:
            self._armed.cancel()
        self._armed_for = float("inf")

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if self._current.get(entry[2]) == entry[:2]]
        heapq.heapify(self._heap)

    def _arm(self, when: float) -> None:
        if self._armed:
            self._armed.cancel()
        self._armed_for = when
        self._armed = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        self._armed, self._armed_for = None, float("inf")
        while self._heap and self._heap[0][0] <= now:
            when, serial, key = heapq.heappop(self._heap)
            if self._current.get(key) == (when, serial):
                del self._current[key]
                self._due(key)
        if self._heap and self._heap[0][0] < self._armed_for:
            self._arm(self._heap[0][0])
