"""What helm makes of the chart: linted, golden for sets of values, refusals in words a person understands.

A golden file holds what a set of values changes against the defaults, whose own file is whole. Read the difference
after writing them anew (make golden).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import CHART, NAMESPACE, Objects, helm, template

pytestmark = pytest.mark.timeout(2700)  # with nothing cached helm is compiled

GOLDEN = Path(__file__).parent / "golden"
SETS = sorted(path.name.removesuffix(".values.yaml") for path in GOLDEN.glob("*.values.yaml"))


@cache
def rendered(name: str) -> Objects:
    return template(GOLDEN / f"{name}.values.yaml")


class Lines(yaml.SafeDumper):
    """Lines of text as lines."""


Lines.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def as_text(name: str) -> str:
    objects, default = rendered(name), rendered("default") if name != "default" else {}
    gone = "".join(f"# without {key}\n" for key in default if key not in objects)
    shown = [one for key, one in objects.items() if one != default.get(key)]
    return gone + yaml.dump_all(shown, Dumper=Lines, sort_keys=False, width=118, default_flow_style=None)


@pytest.mark.parametrize("name", SETS)
def test_golden(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / f"{name}.yaml", as_text(name))


@pytest.mark.parametrize("name", SETS)
def test_lint(name: str) -> None:
    helm("lint", "--strict", "--quiet", str(CHART), f"--values={GOLDEN / f'{name}.values.yaml'}")


def test_types_are_kept_and_can_be_left_out() -> None:
    with_types = helm("template", "headrace", str(CHART), "--show-only=templates/crds/*").stdout
    types = [one for one in yaml.safe_load_all(with_types) if one]
    assert [one["kind"] for one in types] == ["CustomResourceDefinition"] * 2
    assert all(one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for one in types)
    assert not [key for key in rendered("default") if key.startswith("CustomResourceDefinition")]


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, one in objects.items():
        if one["kind"] == "Deployment":
            yield key, one["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", SETS)
def test_configuration_is_what_the_operator_takes(name: str) -> None:
    from headrace_operator.loader.config import OperatorConfig
    from headrace_operator.loader.config_file import read_config

    found = rendered(name).get(f"ConfigMap {NAMESPACE}/headrace-operator")
    if found is None:
        assert name == "remote"
        return
    assert isinstance(read_config(found["data"]["operator.yaml"].encode(), "operator.yaml"), OperatorConfig)


@pytest.mark.parametrize("name", SETS)
def test_arguments_are_what_the_programs_take(name: str) -> None:
    """No flag of a pod is unknown to the command it starts; the commands' own tests say what the flags do."""
    import argparse

    from headrace_operator.cli.run import COMMAND as RUN
    from headrace_router.cli.router import COMMAND as ROUTER

    for key, pod in pods(rendered(name)):
        (container,) = pod["containers"]
        which, *arguments = container["args"]
        parser = argparse.ArgumentParser(exit_on_error=False)
        {"run": RUN, "router": ROUTER}[which].add_arguments(parser)
        _, unknown = parser.parse_known_args(arguments)
        assert unknown == [], key


def test_a_deployment_with_an_autoscaler_states_no_number() -> None:
    """Else each upgrade would set the autoscaler back."""
    autoscaled = rendered("autoscaled")
    assert "replicas" not in autoscaled[f"Deployment {NAMESPACE}/headrace-router-fe-a"]["spec"]
    target = autoscaled[f"HorizontalPodAutoscaler {NAMESPACE}/headrace-router-fe-a"]["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "headrace-router-fe-a"}


def test_a_change_of_configuration_restarts_nothing() -> None:
    """The operator follows its file: its pods are the same whatever stands in it."""
    deployment = f"Deployment {NAMESPACE}/headrace-operator"
    assert template(None, "--set=operator.config.tick=7s")[deployment] == rendered("default")[deployment]


def test_grace_is_longer_than_what_the_router_takes_to_end() -> None:
    slow = [ROUTER | {"drainDelaySeconds": 30, "graceSeconds": 300}]
    objects = template(None, f"--set-json=routers={json.dumps(slow)}")
    pod = objects[f"Deployment {NAMESPACE}/headrace-router-fe-a"]["spec"]["template"]["spec"]
    given = dict(pairwise(pod["containers"][0]["args"]))
    assert (given["--drain-delay"], given["--grace"]) == ("30", "300")
    assert pod["terminationGracePeriodSeconds"] >= 30 + 300 + 2


def test_processes_are_passed_on_where_there_are_several() -> None:
    objects = template(None, f"--set-json=routers={json.dumps([ROUTER | {'processes': 4}])}")
    arguments = objects[f"Deployment {NAMESPACE}/headrace-router-fe-a"]["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    assert dict(pairwise(arguments))["--processes"] == "4"
    alone = template(None, f"--set-json=routers={json.dumps([ROUTER])}")[f"Deployment {NAMESPACE}/headrace-router-fe-a"]
    assert "--processes" not in alone["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name", SETS)
def test_a_router_reads_the_tables_that_its_role_names(name: str) -> None:
    objects = rendered(name)
    for key, pod in pods(objects):
        arguments = pod["containers"][0]["args"]
        asked = {value for flag, value in pairwise(arguments) if flag == "--configmap"}
        account = pod["serviceAccountName"]
        allowed = {
            f"{one['metadata']['namespace']}/{table}"
            for one in objects.values()
            if one["kind"] == "Role" and one["metadata"]["name"] == account and "-router-" in account
            for rule in one["rules"]
            if rule["resources"] == ["configmaps"]
            for table in rule["resourceNames"]
        }
        assert asked == allowed, key
        assert pod["automountServiceAccountToken"] is bool(asked or arguments[0] == "run")


@pytest.mark.parametrize("name", SETS)
def test_nobody_may_read_secrets(name: str) -> None:
    """Keys and certificates reach pods as mounted files; the right to read Secrets would be one to read them all."""
    for key, one in rendered(name).items():
        for rule in one.get("rules") or ():
            assert not {"secrets", "*"} & set(rule.get("resources", ())), key


@pytest.mark.parametrize("name", SETS)
def test_files_that_a_pod_is_told_of_are_mounted(name: str) -> None:
    for key, pod in pods(rendered(name)):
        (container,) = pod["containers"]
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        assert len(mounts) == len(set(mounts)) == len(pod.get("volumes", ())), key
        assert {mount["name"] for mount in container.get("volumeMounts", ())} == {
            volume["name"] for volume in pod.get("volumes", ())
        }
        for told in (argument for argument in container["args"] if argument.startswith("/etc/headrace/")):
            assert any(f"{told}/".startswith(f"{at}/") or at.startswith(f"{told}/") for at in mounts), (key, told)


def test_what_one_engine_lacks_keeps_no_pod_from_starting() -> None:
    pod = rendered("access")[f"Deployment {NAMESPACE}/headrace-router-fe-a"]["spec"]["template"]["spec"]
    sources = {volume["name"]: volume.get("secret") or volume["configMap"] for volume in pod["volumes"]}
    assert {name for name, source in sources.items() if source.get("optional")} == {
        name for name in sources if name.startswith("engine-")
    }
    assert sources["engine-secret-0"]["secretName"] == "inference-engine-key"
    mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted["engine-secret-0"] == "/etc/headrace/credentials/inference/secrets/engine-key"
    assert mounted["engine-configmap-0"] == "/etc/headrace/credentials/inference/configmaps/engine-ca"


ROUTER = {"frontend": "fe-a", "policies": ["inference/chat"]}
ENGINE_KEY = {"namespace": "inference", "name": "key"}
REFUSALS = {
    "unknown value": ({"operator": {"replica": 3}}, "'/operator': additional properties 'replica' not allowed"),
    "wrong type": ({"operator": {"replicas": "two"}}, "'/operator/replicas': got string, want integer"),
    "unknown field of the configuration": ({"operator": {"config": {"tikc": "5s"}}}, "'tikc' not allowed"),
    "no duration": ({"operator": {"config": {"tick": "soon"}}}, "'/operator/config/tick': 'soon'"),
    "credentials in an address": (
        {"operator": {"config": {"metricSources": [{"name": "p", "url": "https://u:p@prometheus"}]}}},
        "'/operator/config/metricSources/0/url'",
    ),
    "no front-end": ({"routers": [{"policies": ["a/b"]}]}, "'/routers/0': missing property 'frontend'"),
    "no policy": ({"routers": [{"frontend": "fe-a"}]}, "routers[0]: neither policies nor configMaps; right would be"),
    "policy without namespace": (
        {"routers": [ROUTER | {"policies": ["chat"]}]},
        'routers[0].policies: "chat"; right would be NAMESPACE/NAME, such as inference/chat',
    ),
    "front-end twice": ({"routers": [ROUTER, ROUTER]}, 'routers[1].frontend: "fe-a" stands twice; right would be one'),
    "name too long": (
        {"routers": [ROUTER | {"frontend": "f" * 50}]},
        "right would be at most 63: choose a shorter fullnameOverride",
    ),
    "table that can't be mounted": (
        {"routers": [ROUTER | {"apiAccess": False}]},
        "routers[0].apiAccess: false, but the table inference/headrace-chat-fe-a can't be mounted",
    ),
    "autoscaler upside down": (
        {"routers": [ROUTER | {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}}]},
        "routers[0].autoscaling: minReplicas 5 is more than maxReplicas 2",
    ),
    "namespaces in the wrong place": (
        {"operator": {"config": {"watchNamespaces": ["a"]}}},
        "right would be watchNamespaces at the top of the values",
    ),
    "authority of clients without a certificate": (
        {"routers": [ROUTER | {"tls": {"clientCA": {"configMap": "ca"}}}]},
        "routers[0].tls: clientCA without secret; right would be",
    ),
    "credential twice": (
        {"routers": [ROUTER | {"credentials": {"secrets": [ENGINE_KEY, ENGINE_KEY | {"from": "other"}]}}]},
        "routers[0].credentials.secrets[1]: inference/key stands twice",
    ),
    "no namespace": ({"routers": [ROUTER | {"credentials": {"configMaps": [{"name": "ca"}]}}]}, "'namespace'"),
    "no digest": ({"operator": {"image": {"digest": "latest"}}}, "'/operator/image/digest': 'latest' does not match"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_in_words(case: str, tmp_path: Path) -> None:
    values, word = REFUSALS[case]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = helm("template", "headrace", str(CHART), f"--values={tmp_path / 'values.yaml'}", check=False)
    assert done.returncode != 0
    assert word in done.stderr
    assert "executing" not in done.stderr.replace("execution error", ""), "a template broke before it could say why"
