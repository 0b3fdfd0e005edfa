"""The chart and asyncop speak of the same options: what the chart writes, asyncop reads, with the same defaults."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import inspect

from asyncop.cli import config
from asyncop.operators import BUILTINS, RESERVED
from tests.helm.conftest import CHART, ENABLED, Helm

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def as_read_by_asyncop(objects: list[dict[str, Any]], file: Path) -> config.ControllerConfig:
    (written,) = [obj["data"]["config.yaml"] for obj in objects if obj["kind"] == "ConfigMap"]
    file.write_text(written)
    known = {name: builtin.options for name, builtin in BUILTINS.items()}
    return config.check(config.read(str(file), []), known, RESERVED)["stuckPods"]


def test_the_charts_defaults_are_the_controllers_own(helm: Helm, tmp_path: Path) -> None:
    read = as_read_by_asyncop(helm.template(ENABLED), tmp_path / "config.yaml")

    assert read.enabled is True
    assert read.options == BUILTINS["stuckPods"].options()


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_every_option_of_a_controller_is_a_value_of_the_chart(name: str) -> None:
    info = inspect.type_info(BUILTINS[name].options)
    assert isinstance(info, inspect.StructType)

    assert set(VALUES["controllers"][name]) - {"enabled"} == {field.encode_name for field in info.fields}


def test_the_chart_offers_the_controllers_there_are() -> None:
    assert set(VALUES["controllers"]) == set(BUILTINS)


@pytest.mark.parametrize(
    "value",
    [
        *("taintAge=250ms", "taintAge=1h30m", "taintAge=3", "taintAge=0.5"),
        *("maxUnhealthyNodes=1", "namespaces={a,b}", "selector.app=web", "selector=app=web", "taints={*}"),
    ],
)
def test_what_the_schema_lets_through_asyncop_takes(helm: Helm, tmp_path: Path, value: str) -> None:
    objects = helm.template(ENABLED, f"controllers.stuckPods.{value}")

    read = as_read_by_asyncop(objects, tmp_path / "config.yaml")

    assert read.options != BUILTINS["stuckPods"].options()
    BUILTINS["stuckPods"].build(read.options)


@pytest.mark.parametrize("example", sorted((CHART / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_configuration_that_asyncop_takes(helm: Helm, tmp_path: Path, example: Path) -> None:
    read = as_read_by_asyncop(helm.template(files=(example,)), tmp_path / "config.yaml")

    assert read.enabled is True
    BUILTINS["stuckPods"].build(read.options)
