"""Which keys run when, beyond what the queue itself promises."""

from __future__ import annotations

import pytest

from asyncop.api.request import Request
from asyncop.controller.agenda import Agenda
from asyncop.workqueue.queue import QueueShutDownError

pytestmark = pytest.mark.asyncio


async def test_a_lead_won_back_while_we_are_ending_starts_no_new_work() -> None:
    agenda = Agenda("look", "test.look")
    agenda.begin([])
    await agenda.drain()
    agenda.end()  # the lead is lost
    agenda.begin([Request("ns", "a")])  # and won back
    with pytest.raises(QueueShutDownError):
        await agenda.queue.get()
    agenda.end()
