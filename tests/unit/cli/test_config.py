"""`--config` and `--set`: what is wrong is told by its path, with exit code 3; what is right reaches the options."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import asyncop
from asyncop.api.errors import ConfigError
from asyncop.cli import config, options
from asyncop.operators import BUILTINS, RESERVED


class Limits(asyncop.Struct):
    per_minute: int = 10
    window: asyncop.Duration = asyncop.Duration(60)


class Options(asyncop.Struct):
    mode: Literal["report", "delete"] = "report"
    taint_age: asyncop.Duration = asyncop.Duration(60)
    kinds: tuple[str, ...] = ()
    selector: str | dict[str, str] = ""
    limits: Limits = Limits()
    rules: tuple[Limits, ...] = ()
    extra: Limits | None = None
    share: int | str = "50%"
    memory: asyncop.Quantity | None = None


class Needy(asyncop.Struct):
    url: str


KNOWN = {"web": Options, "plain": None}


def options_of(text: str, *assignments: str) -> Options:
    tree = config.read(None, assignments)
    if text:
        import yaml

        tree = yaml.safe_load(text) | tree
    checked = config.check(tree, KNOWN, {})["web"].options
    assert isinstance(checked, Options)
    return checked


def error_of(tree: dict[str, Any], known: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        config.check(tree, known or KNOWN, RESERVED)
    return str(caught.value)


def web(**values: Any) -> dict[str, Any]:
    return {"controllers": {"web": values}}


# -- reading


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: [\n", "c.yaml:3:1: "),
        ("a: 1\n b: 2\n", "c.yaml:2:3: "),
        ("controllers:\n  web: {}\n  web: {}\n", "c.yaml:3:3: the key 'web' is there twice"),
        ("- a\n", "c.yaml: expected a mapping with the key controllers, got list"),
        ("just text\n", "c.yaml: expected a mapping with the key controllers, got str"),
        ("a: !!python/object:os.system {}\n", "c.yaml:1:4: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "c.yaml:2:1: but found another document"),
        ("a: 2020-13-45\n", "c.yaml: month must be in 1..12"),
    ],
)
def test_yaml_that_does_not_load_is_told_with_its_place(command, tmp_path, text: str, says: str) -> None:
    (tmp_path / "c.yaml").write_text(text)

    ended = command("run", "-A", "-q", "-b", "stuckPods", "--config", "c.yaml")

    assert says in ended.line
    assert ended.code == 3


def test_a_configuration_that_is_not_there_is_named(command, tmp_path) -> None:
    assert "nowhere.yaml: no such file" in command("run", "-Aq", "-b", "stuckPods", "--config", "nowhere.yaml").line
    assert ".: is a directory" in command("run", "-Aq", "-b", "stuckPods", "--config", ".").line
    (tmp_path / "rubbish").write_bytes(b"\xff\xfe\x00\x01\x80")
    ended = command("run", "-Aq", "-b", "stuckPods", "--config", "rubbish")
    assert ended.line.startswith("rubbish: ")
    assert ended.code == 3


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "controllers:\n", "controllers:\n  web:\n"])
def test_an_empty_configuration_gives_the_defaults(tmp_path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)

    assert config.check(config.read(str(path), []), KNOWN, {})["web"].options == Options()


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("controllers.web.mode", "--set controllers.web.mode: write PATH=VALUE"),
        ("=x", "--set =x: write PATH=VALUE"),
        ("a..b=1", "--set a..b=1: write PATH=VALUE"),
    ],
)
def test_an_assignment_that_is_none_is_told(command, assignment: str, says: str) -> None:
    ended = command("run", "-A", "-q", "-b", "stuckPods", "--set", assignment)

    assert says in ended.line
    assert ended.code == 3


def test_an_assignment_below_a_value_is_told() -> None:
    with pytest.raises(ConfigError, match=r"--set a\.b\.c=2: a\.b is not a mapping"):
        config.read(None, ["a.b=1", "a.b.c=2"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3s", "3s"),
        ("true", True),
        ("1.5", 1.5),
        ("", ""),
        ("null", None),
        ("*", "*"),
        ("{a,b}", ["a", "b"]),
        ("{*}", ["*"]),
        ("{}", []),
        ("[a, 2]", ["a", 2]),
        ("{a: b}", {"a": "b"}),
        ("app=web", "app=web"),
        ("app in (a, b)", "app in (a, b)"),
    ],
)
def test_values_are_yaml_and_helm_lists(text: str, value: object) -> None:
    assert config.read(None, [f"a.b={text}"]) == {"a": {"b": value}}


def test_assignments_win_over_the_file_and_leave_the_rest(tmp_path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: {b: 1, c: 2}\n")

    assert config.read(str(path), ["a.b=3", r"a.x\.y/z=4"]) == {"a": {"b": 3, "c": 2, "x.y/z": 4}}


# -- checking


def test_good_values_reach_the_options() -> None:
    text = """
    controllers:
      web:
        enabled: true
        mode: delete
        taintAge: 1h30m
        kinds: [StatefulSet]
        selector: {app: web}
        limits: {perMinute: 3}
        rules: [{window: 5}, {window: 250ms}]
        extra: {}
        share: 3
        memory: 1Gi
    """

    assert options_of(text) == Options(
        mode="delete",
        taint_age=asyncop.Duration(5400),
        kinds=("StatefulSet",),
        selector={"app": "web"},
        limits=Limits(per_minute=3),
        rules=(Limits(window=asyncop.Duration(5)), Limits(window=asyncop.Duration(0.25))),
        extra=Limits(),
        share=3,
        memory=asyncop.Quantity("1Gi"),
    )
    assert isinstance(options_of(text).taint_age, asyncop.Duration)


def test_null_counts_as_absent() -> None:
    assert options_of("", "controllers.web.mode=null", "controllers.web.extra=null") == Options()


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"contollers": {}}, "contollers: no such key; did you mean controllers?"),
        ({"controllers": 3}, "controllers: expected a mapping, got 3"),
        ({"controllers": {"wbe": {}}}, "controllers.wbe: no such controller; did you mean web?"),
        ({"controllers": {"zzzz": {}}}, "controllers.zzzz: no such controller; there are: plain, web"),
        ({"controllers": {1: {}}}, "controllers.1: no such controller; there are: plain, web"),
        ({"controllers": {"web": []}}, "controllers.web: expected a mapping, got []"),
        ({"controllers": {"plain": {"x": 1}}}, "controllers.plain.x: no such key; plain takes no options"),
        ({"controllers": {"etcdClusters": {}}}, "controllers.etcdClusters: reserved for a later version"),
        (web(enabled="yes"), "controllers.web.enabled: expected true or false, got 'yes'"),
        (web(enabeld=True), "controllers.web.enabeld: no such key; did you mean enabled?"),
        (web(tainAge=3), "controllers.web.tainAge: no such key; did you mean taintAge?"),
        (web(taint_age=3), "controllers.web.taint_age: no such key; did you mean taintAge?"),
        (web(limits={"perMinuet": 3}), "controllers.web.limits.perMinuet: no such key; did you mean perMinute?"),
        (web(extra={"windwo": 3}), "controllers.web.extra.windwo: no such key; did you mean window?"),
        (web(rules=[{}, {"windwo": 3}]), "controllers.web.rules[1].windwo: no such key; did you mean window?"),
        (web(mode="kill"), "controllers.web.mode: 'kill' is not one of delete, report"),
        (web(mode=3), "controllers.web.mode: 3 is not one of delete, report"),
        (web(taintAge="3 weeks"), "controllers.web.taintAge: '3 weeks' is not a duration; write 3s, 5m, 1h30m or sec"),
        (web(taintAge=True), "controllers.web.taintAge: True is not a duration"),
        (web(taintAge=-1), "controllers.web.taintAge: -1 is not a duration"),
        (web(kinds="Pod"), "controllers.web.kinds: expected a list, got 'Pod'"),
        (web(kinds=["a", 2]), "controllers.web.kinds[1]: expected text, got 2"),
        (web(limits=3), "controllers.web.limits: expected a mapping, got 3"),
        (web(limits={"perMinute": "x"}), "controllers.web.limits.perMinute: expected a whole number, got 'x'"),
        (web(limits={"perMinute": 1.5}), "controllers.web.limits.perMinute: expected a whole number, got 1.5"),
        (web(rules=[{"window": "x"}]), "controllers.web.rules[0].window: 'x' is not a duration"),
        (web(share=[]), "controllers.web.share: expected a whole number or text, got []"),
        (web(selector={"a": 1}), "controllers.web.selector[...]: expected text"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(tree: dict[str, Any], says: str) -> None:
    assert says in error_of(tree)


def test_an_option_without_a_default_must_be_there() -> None:
    assert error_of({}, {"needy": Needy}) == "controllers.needy: url is missing, and it has no default"


def test_enabled_says_nothing_unless_it_is_there() -> None:
    checked = config.check({"controllers": {"plain": {"enabled": False}}}, KNOWN, {})

    assert checked["plain"].enabled is False
    assert checked["web"].enabled is None


def test_the_ready_made_controllers_take_their_documented_defaults_back() -> None:
    defaults = BUILTINS["stuckPods"].options()
    values = {"taints": list(defaults.taints), "taintAge": "60s", "maxUnhealthyNodes": "50%", "mode": "report"}

    assert options.convert(values, BUILTINS["stuckPods"].options, "controllers.stuckPods") == defaults


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("controllers.stuckPods.tainAge=3s", "controllers.stuckPods.tainAge: no such key; did you mean taintAge?"),
        ("controllers.stuckPods.mode=kill", "controllers.stuckPods.mode: 'kill' is not one of delete, report"),
        ("controllers.stuckPods.maxUnhealthyNodes=most", "controllers.stuckPods.maxUnhealthyNodes: 'most' is neither"),
        ("controllers.stuckPods.selector=a b c", "controllers.stuckPods.selector: 'a b c' is not a label selector"),
        ("controllers.companionPods.enabled=true", "controllers.companionPods: not in this version"),
    ],
)
def test_a_wrong_option_ends_the_process_with_3(command, assignment: str, says: str) -> None:
    ended = command("run", "-A", "-q", "-b", "stuckPods", "--set", assignment)

    assert says in ended.line
    assert ended.code == 3


def test_enabled_is_the_same_as_b(command, tmp_path) -> None:
    off = ("--health-bind-address", "0", "--metrics-bind-address", "0", "--kubeconfig", "nowhere")
    (tmp_path / "c.yaml").write_text("controllers:\n  stuckPods:\n    enabled: true\n    taintAge: 3s\n")
    (tmp_path / "op.py").write_text("import asyncop\n@asyncop.reconciler('pods')\nasync def web(pod, ctx): ...\n")

    assert "kubeconfig nowhere does not exist" in command("run", "-A", "-q", "--config", "c.yaml", *off).line
    switched_off = command("run", "-A", "-q", "op.py", "--set", "controllers.web.enabled=false", *off)
    assert "nothing to run" in switched_off.line
    assert switched_off.code == 2


@pytest.mark.parametrize(("flags", "warns"), [((), True), (("-b", "stuckPods"), False)])
def test_a_ready_made_controller_that_is_configured_and_does_not_run_is_told(command, tmp_path, flags, warns) -> None:
    off = ("--health-bind-address", "0", "--metrics-bind-address", "0", "--kubeconfig", "nowhere")
    (tmp_path / "op.py").write_text("import asyncop\n@asyncop.reconciler('pods')\nasync def web(pod, ctx): ...\n")

    ended = command("run", "-A", "op.py", "--set", "controllers.stuckPods.taintAge=3s", *flags, *off)

    assert ("stuckPods is configured, but it doesn't run: add -b stuckPods" in ended.err + ended.out) == warns


def test_what_a_few_aliases_blow_up_is_shown_short() -> None:
    value: Any = "ha"
    for _ in range(30):
        value = [value] * 9

    message = error_of(web(mode=value))

    assert message.startswith("controllers.web.mode: [")
    assert len(message) < 1000
