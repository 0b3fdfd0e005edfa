"""The embedded server answers as the real one: the same talks, word for word but for what differs by nature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.apiserver.cases.all import CASES
from tests.contract.apiserver.servers import talk

if TYPE_CHECKING:
    from tests.contract.apiserver.conftest import Told
    from tests.contract.apiserver.transcript import Endpoint


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", list(CASES))
def test_the_embedded_server_answers_as_the_real_one(name: str, embedded: Endpoint, real: Told) -> None:
    assert talk(embedded, CASES[name]) == real(name)
