"""What the chart renders, asked of the helm binary; nothing here needs a cluster."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from asyncop.api.duration import parse_duration
from asyncop.manager import LeaderElectionOptions
from tests.helm.conftest import CHART, ENABLED, Helm, flags

DELETE = "controllers.stuckPods.mode=delete"
NO_ELECTION = "leaderElection.enabled=false"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
Objects = list[dict[str, Any]]


def one(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = [obj for obj in objects if obj["kind"] == kind]
    return found


def pod_spec(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(objects: Objects) -> dict[str, Any]:
    (found,) = pod_spec(objects)["containers"]
    assert isinstance(found, dict)
    return found


def config(objects: Objects) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(one(objects, "ConfigMap")["data"]["config.yaml"])
    return loaded


def granted(objects: Objects) -> set[tuple[str, str, str, str]]:
    """(namespace or empty, group, resource, verb) of every rule."""
    return {
        (role["metadata"].get("namespace", ""), group, resource, verb)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def names_of_leases(objects: Objects) -> set[tuple[str, ...]]:
    """To which Leases of the release's namespace each right is limited, by verb; nothing: to none in particular."""
    return {
        (verb, *rule.get("resourceNames", ()))
        for role in objects
        if role["kind"] == "Role" and role["metadata"]["namespace"] == "ops"
        for rule in role["rules"]
        for verb in rule["verbs"]
    }


def notes(helm: Helm, *sets: str) -> str:
    """What helm shows after an installation."""
    return helm.run("install", "asyncop", CHART, "--dry-run=client", *flags(sets, ())).stdout.partition("NOTES:")[2]


# What is refused


def test_without_a_controller_it_refuses_in_one_line_that_says_what_to_set(helm: Helm) -> None:
    said = [line for line in helm.refusal().splitlines() if line.startswith("Error:")]

    assert len(said) == 1
    assert "--set controllers.stuckPods.enabled=true" in said[0]


@pytest.mark.parametrize(
    "typo",
    ["imag.tag=x", "image.tga=x", "controllers.stuckPod.enabled=true", "controllers.stuckPods.taintage=3s", "rbac.x=y"],
)
def test_a_misspelled_value_is_refused_by_name(helm: Helm, typo: str) -> None:
    key = typo.partition("=")[0].rpartition(".")[2] if not typo.startswith(("imag.", "controllers.stuckPod.")) else ""
    assert f"additional properties '{key}" in helm.refusal(ENABLED, typo)


@pytest.mark.parametrize(
    "value",
    [
        "taintAge=3x",
        "taintAge=-1",
        "leaseWindow=soon",
        "leaseWindow=0s",
        "maxUnhealthyNodes=101%",
        "maxUnhealthyNodes=half",
        "maxDeletionsPerMinute=0",
        "mode=kill",
        "enabled=perhaps",
        "namespaces=default",
    ],
)
def test_a_value_of_the_wrong_form_is_refused_by_its_path(helm: Helm, value: str) -> None:
    path = value.partition("=")[0]
    assert f"'/controllers/stuckPods/{path}'" in helm.refusal(ENABLED, f"controllers.stuckPods.{value}")


@pytest.mark.parametrize(
    "value", ["taintAge=3s", "taintAge=1h30m", "taintAge=250ms", "taintAge=3", "taintAge=0.5", "maxUnhealthyNodes=1"]
)
def test_every_spelling_of_a_duration_and_a_bound_is_accepted(helm: Helm, value: str) -> None:
    key, _, expected = value.partition("=")

    options = config(helm.template(ENABLED, f"controllers.stuckPods.{value}"))["controllers"]["stuckPods"]

    assert str(options[key]) == expected


@pytest.mark.parametrize("value", ["replicas=-1", "replicas=two", "leaderElection.leaseDuration=15x"])
def test_replicas_and_times_of_the_wrong_form_are_refused_by_their_path(helm: Helm, value: str) -> None:
    path = value.partition("=")[0].replace(".", "/")
    assert f"'/{path}'" in helm.refusal(ENABLED, value)


def test_several_replicas_without_election_are_refused_in_one_line_that_says_what_to_set(helm: Helm) -> None:
    said = [line for line in helm.refusal(ENABLED, NO_ELECTION).splitlines() if line.startswith("Error:")]

    assert len(said) == 1
    assert "set replicas=1, or leaderElection.enabled=true" in said[0]


# What may be done


def test_report_mode_may_look_and_tell_and_nothing_else(helm: Helm) -> None:
    assert granted(helm.template(ENABLED)) == {
        *(("", "", "pods", verb) for verb in ("get", "list", "watch")),
        *(("", "", "nodes", verb) for verb in ("get", "list", "watch")),
        ("", "events.k8s.io", "events", "create"),
        ("kube-node-lease", "coordination.k8s.io", "leases", "get"),
        *(("ops", "coordination.k8s.io", "leases", verb) for verb in ("get", "create", "patch")),
    }


def test_of_the_leases_in_its_namespace_it_may_read_and_patch_its_own_alone(helm: Helm) -> None:
    objects = helm.template(ENABLED, release="night-watch")

    assert names_of_leases(objects) == {("get", "night-watch"), ("patch", "night-watch"), ("create",)}


def test_without_election_it_has_no_right_to_leases_in_its_namespace(helm: Helm) -> None:
    assert names_of_leases(helm.template(ENABLED, NO_ELECTION, "replicas=1")) == set()


def test_delete_mode_adds_the_deletion_of_pods_alone(helm: Helm) -> None:
    assert granted(helm.template(ENABLED, DELETE)) - granted(helm.template(ENABLED)) == {("", "", "pods", "delete")}


def test_no_rule_holds_a_wildcard(helm: Helm) -> None:
    roles = [obj for obj in helm.template(ENABLED, DELETE) if obj["kind"] in ("Role", "ClusterRole")]

    assert len(roles) == 3
    assert "*" not in yaml.safe_dump([role["rules"] for role in roles])


def test_every_role_is_bound_to_the_pods_own_account(helm: Helm) -> None:
    objects = helm.template(ENABLED, "serviceAccount.name=watcher")
    roles = {(obj["kind"], obj["metadata"]["name"]) for obj in objects if obj["kind"].endswith("Role")}
    bindings = [obj for obj in objects if obj["kind"].endswith("Binding")]

    assert {(obj["roleRef"]["kind"], obj["roleRef"]["name"]) for obj in bindings} == roles
    account = {"kind": "ServiceAccount", "name": "watcher", "namespace": "ops"}
    assert [obj["subjects"] for obj in bindings] == [[account]] * len(roles)
    assert one(objects, "ServiceAccount")["metadata"]["name"] == "watcher"
    assert pod_spec(objects)["serviceAccountName"] == "watcher"


def test_no_roles_and_no_account_are_made_when_told_so(helm: Helm) -> None:
    objects = helm.template(ENABLED, "rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=mine")

    assert {obj["kind"] for obj in objects} == {"ConfigMap", "Deployment", "PodDisruptionBudget"}
    assert pod_spec(objects)["serviceAccountName"] == "mine"


def test_two_releases_of_one_name_share_no_object_outside_of_their_namespaces(helm: Helm) -> None:
    def shared(namespace: str) -> set[tuple[str, str]]:
        objects = helm.template(ENABLED, namespace=namespace)
        return {
            (obj["kind"], obj["metadata"]["name"]) for obj in objects if obj["metadata"].get("namespace") != namespace
        }

    assert len(shared("one")) == 4
    assert not shared("one") & shared("two")


# What runs


def test_it_runs_every_namespace_under_the_releases_name_and_elects_a_leader(helm: Helm) -> None:
    values = ("extraArgs={-v}", "leaderElection.retryPeriod=500ms")
    args = container(helm.template(ENABLED, *values, release="night-watch"))["args"]

    assert args == [
        *("run", "-A", "--name=night-watch", "--config=/etc/asyncop/config.yaml"),
        "--leader-elect",
        "--leader-election-lease-duration=15s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=500ms",
        "-v",
    ]


def test_election_is_switched_off_by_a_flag(helm: Helm) -> None:
    args = container(helm.template(ENABLED, NO_ELECTION, "replicas=1"))["args"]

    assert [arg for arg in args if "leader" in arg] == ["--no-leader-elect"]


def test_a_pod_knows_its_name_and_what_else_it_is_given(helm: Helm) -> None:
    environment = container(helm.template(ENABLED, "extraEnv[0].name=TZ,extraEnv[0].value=UTC"))["env"]

    assert environment == [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TZ", "value": "UTC"},
    ]


def test_more_volumes_are_mounted_beside_its_own(helm: Helm) -> None:
    volume = "extraVolumes[0].name=code,extraVolumes[0].configMap.name=code"
    objects = helm.template(ENABLED, volume, "extraVolumeMounts[0].name=code,extraVolumeMounts[0].mountPath=/code")

    assert pod_spec(objects)["volumes"][2:] == [{"name": "code", "configMap": {"name": "code"}}]
    assert container(objects)["volumeMounts"][2:] == [{"name": "code", "mountPath": "/code"}]


def test_options_reach_the_configuration_as_they_stand_in_the_values(helm: Helm) -> None:
    assert config(helm.template(ENABLED)) == {"controllers": {"stuckPods": {**stuck_pods_defaults(), "enabled": True}}}


def test_an_option_keeps_its_type_on_the_way(helm: Helm) -> None:
    objects = helm.template(ENABLED, "controllers.stuckPods.maxDeletionsPerMinute=1000000")

    assert config(objects)["controllers"]["stuckPods"]["maxDeletionsPerMinute"] == 1_000_000


def test_a_changed_option_makes_a_new_pod(helm: Helm) -> None:
    def annotations(*sets: str) -> Any:
        return one(helm.template(ENABLED, *sets), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations()
    assert annotations() != annotations(DELETE)


def test_the_configuration_is_where_the_flag_points(helm: Helm) -> None:
    objects = helm.template(ENABLED)
    volumes = {volume["name"]: volume for volume in pod_spec(objects)["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container(objects)["volumeMounts"]}

    assert mounts["/etc/asyncop"]["readOnly"] is True
    assert volumes[mounts["/etc/asyncop"]["name"]]["configMap"]["name"] == one(objects, "ConfigMap")["metadata"]["name"]
    assert volumes[mounts["/tmp"]["name"]]["emptyDir"] == {}


def test_two_pods_never_act_at_once_during_an_upgrade(helm: Helm) -> None:
    alone = one(helm.template(ENABLED, NO_ELECTION, "replicas=1"), "Deployment")["spec"]
    elected = one(helm.template(ENABLED), "Deployment")["spec"]

    assert (alone["replicas"], alone["strategy"]["type"]) == (1, "Recreate")
    assert (elected["replicas"], elected["strategy"]["type"]) == (2, "RollingUpdate")


def test_two_replicas_spread_over_nodes_if_they_can(helm: Helm) -> None:
    objects = helm.template(ENABLED)
    (constraint,) = pod_spec(objects)["topologySpreadConstraints"]

    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraint["labelSelector"] == one(objects, "Deployment")["spec"]["selector"]
    assert "topologySpreadConstraints" not in pod_spec(helm.template(ENABLED, "replicas=1"))


def test_two_replicas_are_evicted_one_after_the_other_and_a_lone_one_at_once(helm: Helm) -> None:
    objects = helm.template(ENABLED)

    assert one(objects, "PodDisruptionBudget")["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": one(objects, "Deployment")["spec"]["selector"],
    }
    assert "PodDisruptionBudget" not in {obj["kind"] for obj in helm.template(ENABLED, "replicas=1")}


def test_its_times_are_those_that_asyncop_has_by_default() -> None:
    values, defaults = VALUES["leaderElection"], LeaderElectionOptions(name="any")

    assert parse_duration(values["leaseDuration"]) == defaults.lease_duration
    assert parse_duration(values["renewDeadline"]) == defaults.renew_deadline
    assert parse_duration(values["retryPeriod"]) == defaults.retry_period


def test_the_three_probes_ask_the_health_port(helm: Helm) -> None:
    found = container(helm.template(ENABLED))
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    probes = {name: found[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}

    assert ports == {"metrics": 8080, "health": 8081}
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/startupz", "port": "health"},
        "liveness": {"path": "/livez", "port": "health"},
        "readiness": {"path": "/readyz", "port": "health"},
    }
    # Starting may take as long as asyncop waits for the API server; a wedged one is replaced in a minute.
    assert {name: probe["periodSeconds"] * probe["failureThreshold"] for name, probe in probes.items()} == {
        "startup": 120,
        "liveness": 60,
        "readiness": 15,
    }


def test_it_leaves_a_dead_node_after_half_a_minute(helm: Helm) -> None:
    tolerated = {one["key"]: one["tolerationSeconds"] for one in pod_spec(helm.template(ENABLED))["tolerations"]}

    assert tolerated == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


def test_the_image_is_the_charts_version_unless_a_tag_or_digest_is_given(helm: Helm) -> None:
    digest = "sha256:" + "a" * 64

    assert container(helm.template(ENABLED))["image"] == f"asyncop:{chart()['appVersion']}"
    assert container(helm.template(ENABLED, "image.tag=dev"))["image"] == "asyncop:dev"
    assert container(helm.template(ENABLED, "image.tag=dev", f"image.digest={digest}"))["image"] == f"asyncop@{digest}"


def test_notes_say_what_is_on_and_in_which_mode(helm: Helm) -> None:
    assert "stuckPods is on, mode report: nothing is deleted" in notes(helm, ENABLED)
    assert "stuckPods is on, mode delete" in notes(helm, ENABLED, DELETE)


def test_notes_say_how_to_see_that_it_runs_and_what_it_decided(helm: Helm) -> None:
    assert "kubectl rollout status -n default deployment/asyncop" in notes(helm, ENABLED)
    assert "--sort-by=.metadata.creationTimestamp" in notes(helm, ENABLED)


def test_notes_say_how_many_run_and_how_to_find_the_one_that_works(helm: Helm) -> None:
    assert "2 replicas run, one works and the others stand by" in notes(helm, ENABLED)
    assert "kubectl get lease asyncop" in notes(helm, ENABLED)
    assert "lease" not in notes(helm, ENABLED, NO_ELECTION, "replicas=1")


# What must agree


def test_lint_has_nothing_to_say_but_for_the_icon(helm: Helm) -> None:
    done = helm.run("lint", "--strict", CHART, "--set", ENABLED)

    found = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0
    assert found == ["[INFO] Chart.yaml: icon is recommended"]


def test_values_and_schema_name_the_same_keys() -> None:
    assert set(schema_keys(SCHEMA)) - {"global"} == set(value_keys(VALUES, SCHEMA))


def test_the_schema_is_closed_wherever_it_names_keys() -> None:
    def open_objects(schema: dict[str, Any], path: str = "") -> Iterator[str]:
        if "properties" in schema:
            if schema.get("additionalProperties") is not False:
                yield path or "."
            for key, child in schema["properties"].items():
                yield from open_objects(child, f"{path}.{key}")

    assert list(open_objects(SCHEMA)) == []


@pytest.mark.parametrize("example", sorted((CHART / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_installs(helm: Helm, example: Any) -> None:
    given = yaml.safe_load(example.read_text())["controllers"]["stuckPods"]

    options = config(helm.template(files=(example,)))["controllers"]["stuckPods"]

    assert {key: options[key] for key in given} == given


def test_the_chart_and_the_project_have_one_version() -> None:
    project = tomllib.loads((CHART.parent / "pyproject.toml").read_text())["project"]

    assert chart()["version"] == chart()["appVersion"] == project["version"]


def chart() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return loaded


def stuck_pods_defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = VALUES["controllers"]["stuckPods"]
    return defaults


def schema_keys(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, child in schema.get("properties", {}).items():
        yield f"{path}{key}"
        yield from schema_keys(child, f"{path}{key}.")


def value_keys(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Only as deep as the schema names keys: below, they are Kubernetes'."""
    for key, child in values.items():
        yield f"{path}{key}"
        below = schema.get("properties", {}).get(key, {})
        if isinstance(child, dict) and "properties" in below:
            yield from value_keys(child, below, f"{path}{key}.")
