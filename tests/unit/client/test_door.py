"""kubernetes_asyncio behind the lazy door is the same package, only cheaper.

Each test runs programs of its own, since the package can be imported in one way only in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.bench.client_cost import CLIENT, PLAIN, kubeconfig_in, measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
LAZY = "from asyncop.client.door import open_door; open_door()\n"


def run(program: str) -> Any:
    """What a program prints as JSON; warnings are errors in it as well."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


NAMES = """
import importlib, json
import kubernetes_asyncio
found = {}
for name in ("", ".client", ".client.models", ".client.api", ".config", ".watch", ".stream", ".dynamic", ".utils",
             ".client.rest", ".client.exceptions", ".client.configuration", ".client.api_client", ".leaderelection"):
    module = importlib.import_module("kubernetes_asyncio" + name)
    values = {}
    for each in set(dir(module)) - {"__builtins__"}:  # in the namespace of any code that was run
        value = getattr(module, each)
        home = getattr(value, "__module__", None)
        values[each] = [type(value).__name__, value.__name__ if type(value).__name__ == "module" else str(home)]
    found[name] = {"dir": values, "all": getattr(module, "__all__", None), "file": module.__file__,
                   "version": getattr(module, "__version__", None), "doc": bool(module.__doc__)}
scope = {}
exec("from kubernetes_asyncio.client import *", scope)
found["star"] = sorted(name for name in scope if name != "__builtins__")
exec("from kubernetes_asyncio.client.models import *", scope)
found["stars"] = sorted(name for name in scope if name != "__builtins__")
print(json.dumps(found))
"""


def test_every_name_is_there_as_after_a_plain_import() -> None:
    plain, lazy = run(NAMES), run(LAZY + NAMES)
    for module, expected in plain.items():
        if module in ("star", "stars"):
            assert lazy[module] == expected
            continue
        actual = lazy[module]
        missing = expected["dir"].keys() - actual["dir"].keys()
        assert not missing, f"{module}: {sorted(missing)[:5]}"
        different = {name for name, what in expected["dir"].items() if actual["dir"][name] != what}
        assert different <= {"__doc__", "__loader__", "__spec__", "__cached__"}, module
        assert actual["dir"].keys() - expected["dir"].keys() <= {"__getattr__", "__dir__"}, module
        assert (actual["all"], actual["file"], actual["version"]) == (
            expected["all"],
            expected["file"],
            expected["version"],
        )


def test_no_model_is_run_before_it_is_asked_for() -> None:
    program = """
    import json, sys
    def loaded():
        return [name for name in sys.modules if name.startswith(("kubernetes_asyncio.client.models.",
                                                                 "kubernetes_asyncio.client.api."))]
    before = loaded()
    from kubernetes_asyncio.client import V1Pod
    print(json.dumps([before, loaded()]))
    """
    before, after = run(LAZY + textwrap.dedent(program))
    assert before == []
    assert after == ["kubernetes_asyncio.client.models.v1_pod"]


def test_an_object_is_the_same_from_wherever_it_is_reached() -> None:
    program = """
    import json, pickle
    from kubernetes_asyncio.client.api.core_v1_api import CoreV1Api
    from kubernetes_asyncio.client.models.v1_pod import V1Pod
    import kubernetes_asyncio.client.models.v1_node
    import kubernetes_asyncio as k
    pod = V1Pod(kind="Pod", metadata=k.client.V1ObjectMeta(name="a"))
    print(json.dumps([
        k.client.V1Pod is k.client.models.V1Pod is V1Pod is k.client.models.v1_pod.V1Pod,
        k.client.CoreV1Api is k.client.api.CoreV1Api is CoreV1Api,
        k.client.models.v1_node.V1Node is k.client.V1Node,
        pickle.loads(pickle.dumps(pod)) == pod,
        pickle.loads(pickle.dumps(V1Pod)) is V1Pod,
        hasattr(k.client, "NoSuchThing"),
    ]))
    """
    assert run(LAZY + textwrap.dedent(program)) == [True, True, True, True, True, False]


def test_an_unknown_name_is_refused_as_usual() -> None:
    program = """
    import json
    try:
        from kubernetes_asyncio.client import NoSuchThing
    except ImportError as error:
        print(json.dumps(str(error)[:71]))
    """
    assert run(LAZY + textwrap.dedent(program)) == run(program)


def test_answers_are_deserialized_into_models() -> None:
    program = """
    import asyncio, json
    from kubernetes_asyncio.client import ApiClient
    class Response:
        data = json.dumps({"items": [{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}]})
    async def main():
        async with ApiClient() as api:
            pods = api.deserialize(Response, "V1PodList")
            assert type(pods.items[0].spec.containers[0]).__name__ == "V1Container"
            print(json.dumps(api.sanitize_for_serialization(pods.items[0].metadata)))
    asyncio.run(main())
    """
    assert run(LAZY + textwrap.dedent(program)) == {"name": "a"}


def test_a_package_that_is_imported_already_is_left_alone() -> None:
    program = """
    import json
    import kubernetes_asyncio.client
    before = dict(vars(kubernetes_asyncio.client))
    from asyncop.client.door import open_door
    open_door()
    print(json.dumps([before == vars(kubernetes_asyncio.client), "__getattr__" in before]))
    """
    assert run(program) == [True, False]


def test_nothing_stays_behind_in_the_import_system() -> None:
    program = """
    import json, sys
    from asyncop.client.door import open_door
    open_door()
    print(json.dumps([str(finder) for finder in sys.meta_path if "asyncop" in str(finder)]))
    """
    assert run(program) == []


def test_a_package_that_looks_different_is_run_plainly(tmp_path: Path) -> None:
    package = tmp_path / "kubernetes_asyncio"
    sources = {
        "__init__.py": "import kubernetes_asyncio.client\n",
        "client/__init__.py": "from kubernetes_asyncio.client.models import V1Pod\nV2 = V1Pod\n__all__ = ['V1Pod']\n",
        "client/models/__init__.py": (
            "from kubernetes_asyncio.client.models.v1_pod import V1Pod\n"
            '__all__ = [\n    "V1Pod",\n]\nfor name in __all__:\n    globals()[name + "Alias"] = globals()[name]\n'
        ),
        "client/models/v1_pod.py": "class V1Pod: pass\n",
        "client/api/__init__.py": "",
    }
    for name, source in sources.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    program = f"""
    import json, sys
    sys.path.insert(0, {str(tmp_path)!r})
    from asyncop.client.door import open_door
    open_door()
    import kubernetes_asyncio.client as client
    print(json.dumps([client.V2 is client.models.V1PodAlias, hasattr(client, "__getattr__")]))
    """
    assert run(program) == [True, False]


def test_a_client_needs_at_most_seven_tenths_of_the_memory_of_the_plain_import(tmp_path: Path) -> None:
    kubeconfig = kubeconfig_in(tmp_path)
    client = min(measure(CLIENT, kubeconfig).rss_bytes for _ in range(3))
    plain = min(measure(PLAIN, kubeconfig).rss_bytes for _ in range(3))
    assert client <= 0.7 * plain
