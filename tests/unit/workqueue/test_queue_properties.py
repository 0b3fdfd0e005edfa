"""Random operations against a model: a set of what must still run, and a set of what is running."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from asyncop.workqueue import Priority, WorkQueue

KEYS = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """No key is lost, none is handed out twice at once, none comes out that nobody added."""

    loop: asyncio.AbstractEventLoop | None = None

    @initialize()  # not __init__: hypothesis also makes machines that it never tears down
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.queue: WorkQueue[str] = WorkQueue()
        self.wanted: set[str] = set()
        self.running: set[str] = set()

    def call(self, function, *args):
        async def run():
            return function(*args)

        return self.loop.run_until_complete(run())

    @rule(key=KEYS, priority=st.sampled_from(Priority))
    def add(self, key: str, priority: Priority) -> None:
        self.call(self.queue.add, key, priority)
        self.wanted.add(key)

    @precondition(lambda self: self.wanted - self.running)
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(asyncio.wait_for(self.queue.get(), 1))
        assert key not in self.running
        assert key in self.wanted
        self.wanted.discard(key)
        self.running.add(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.call(self.queue.done, key)
        self.running.discard(key)

    @invariant()
    def everything_wanted_is_ready_or_follows_its_run(self) -> None:
        assert len(self.queue) == len(self.wanted - self.running)

    def teardown(self) -> None:
        if self.loop:
            self.loop.close()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
