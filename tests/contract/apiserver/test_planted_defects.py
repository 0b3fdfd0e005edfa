"""The comparison sees what is wrong: every planted defect makes its case differ from the real server's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncop.testing import ApiServer
from tests.contract.apiserver.cases.all import CASES
from tests.contract.apiserver.defects import DEFECTS
from tests.contract.apiserver.servers import embedded_endpoint, talk

if TYPE_CHECKING:
    from tests.contract.apiserver.conftest import Told


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 20


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_planted_defect_is_caught(name: str, real: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, case = DEFECTS[name]
    expected = real(case)
    plant(monkeypatch)
    with ApiServer(controllers=False) as server:
        try:
            found = talk(embedded_endpoint(server), CASES[case])
        except (AssertionError, KeyError):
            return  # an answer lacks what the talk goes on with
    assert found != expected
    assert not any("Server got itself in trouble" in str(line["body"]) for line in found if line.get("status") == 500)
