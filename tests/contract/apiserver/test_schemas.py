"""The fields that the embedded server knows are those of the release it is compared with."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from tests.contract.apiserver.go_types import render

if TYPE_CHECKING:
    from tests.testbed.cluster import Cluster


def test_the_data_file_is_what_the_sources_say(control_plane: Cluster) -> None:
    assert control_plane.bin.exists(), "the sources are where the control plane was compiled from"
    assert resources.files("asyncop.testing").joinpath("schemas.json").read_text() == render()
