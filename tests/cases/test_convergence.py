"""Whatever happens, the cache ends equal to the server and every object is reconciled after its last change."""

from __future__ import annotations

import pytest

from tests.cases.convergence import run


@pytest.mark.asyncio
@pytest.mark.timeout(150)
async def test_random_operations_faults_restarts_and_compactions_lose_nothing() -> None:
    assert await run(list(range(1, 26))) == []
