"""The operator's configuration: every fault in one run, and a wrong edit changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_api.commands import InputError
from headrace_operator.loader.config import OperatorConfig, RoutersConfig
from headrace_operator.loader.config_file import ConfigFile, read_config
from headrace_operator.loader.loader import scrape_settings

GOOD = b"""
tick: 1s
scrape: {interval: 500ms, timeout: 400ms, maxPage: 1Mi}
routers:
- {frontend: fe-a, urls: ["http://127.0.0.1:9101"]}
penalty: {after: 4s, exitPercent: 120}
trim: {enabled: false}
promptClasses: {enabled: true}
metricNames:
- {runtime: Custom, signal: running, names: [my_running]}
"""


def test_good() -> None:
    config = read_config(GOOD, "c.yaml")
    assert isinstance(config, OperatorConfig)
    assert config.routers == (RoutersConfig(frontend="fe-a", urls=("http://127.0.0.1:9101",)),)
    assert config.penalty.rules().after == 4.0
    assert config.penalty.rules().exit == 1.2
    assert not config.trim.enabled
    assert config.prompt_classes.enabled
    assert OperatorConfig().trim.enabled
    assert not OperatorConfig().prompt_classes.enabled
    settings = scrape_settings(config)
    assert (settings.interval, settings.timeout, settings.max_page) == (0.5, 0.4, 2**20)


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"{}"])
def test_an_empty_file_is_all_defaults(data: bytes) -> None:
    assert read_config(data, "c") == OperatorConfig()


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param("tick: soon", ["c: tick: 'soon':"], id="no duration"),
        pytest.param("tick: 0s", ["c: tick: '0s': right would be 100ms to 5m"], id="too fast"),
        pytest.param("tikc: 1s", ["c: tikc: unknown field; right would be one of"], id="unknown field"),
        pytest.param("[]", ["c: the file: [] is not a mapping"], id="a list"),
        pytest.param("scrape: 3", ["c: scrape: 3 is not a mapping"], id="a number for a mapping"),
        pytest.param("routers: [{port: 7}]", ["routers[0].port: unknown", "routers[0].frontend: missing"], id="two"),
        pytest.param("routers: 7", ["c: routers: 7"], id="no list"),
        pytest.param(
            "routers: [{frontend: a, urls: ['http://x']}, {frontend: a, urls: ['http://y']}]",
            ["front-end 'a' stands twice"],
            id="twice",
        ),
        pytest.param(
            "penalty: {exitPercent: 300}", ["penalty.exitPercent: 300: right would be less than"], id="crossed"
        ),
        pytest.param("penalty: {window: 0s}", ["penalty.window: '0s'"], id="no window"),
        pytest.param("scrape: {timeout: 0s}", ["scrape.timeout: '0s'"], id="no time"),
        pytest.param("scrape: {interval: 1h}", ["scrape.interval: '1h'"], id="too slow"),
        pytest.param("scrape: {maxPage: 1}", ["scrape.maxPage: 1"], id="too small"),
        pytest.param(
            "metricNames: [{runtime: vLLM, signal: speed, names: [x]}]", ["metricNames[0].signal: 'speed'"], id="signal"
        ),
        pytest.param("tick: 1s\ntick: 2s", ["c:2: key 'tick' stands twice"], id="duplicate key"),
        pytest.param("a: &x 1\nb: *x", ["c:2: aliases are refused"], id="alias"),
        pytest.param("a: [", ["c:"], id="not YAML"),
        pytest.param("tick: bad\nliveness: {refused: 0}", ["tick: 'bad'", "liveness.refused: 0"], id="all in one run"),
    ],
)
def test_faults(text: str, faults: list[str]) -> None:
    found = read_config(text.encode(), "c")
    assert not isinstance(found, OperatorConfig)
    assert len(found) == len(faults)
    for fault, expected in zip(found, faults, strict=True):
        assert expected in fault


def test_hostile_files() -> None:
    for data in (b"x" * (2**20 + 1), b"\xff\xfe\x00", b"? {a: b}\n: c", b"[" * 5000):
        assert not isinstance(read_config(data, "c"), OperatorConfig)


def test_hot_reload_keeps_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("tick: 1s")
    file = ConfigFile(path)
    assert (file.look().config.tick, file.look().changed) == ("1s", False)
    path.write_text("tick: 2s")
    assert (file.look().config.tick, file.look().changed) == ("2s", False)
    path.write_text("tick: never")
    looked = file.look()
    assert (looked.config.tick, looked.changed) == ("2s", False)
    assert "tick: 'never'" in looked.faults[0]
    assert file.look().faults == looked.faults
    path.unlink()
    assert "right would be a readable file" in file.look().faults[0]
    path.write_text("tick: 3s")
    assert file.look().changed


def test_a_wrong_file_at_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("tick: never")
    with pytest.raises(InputError):
        ConfigFile(path)


def test_without_a_file() -> None:
    assert ConfigFile(None).look().config == OperatorConfig()


CLUSTER = b"""
metricSources:
- name: gpu-use1
  url: https://prometheus.gpu-use1.example/prom
  timeout: 3s
  tenant: {value: llm}
  auth: {basic: {username: headrace, passwordFile: /etc/headrace/secrets/prometheus/password}}
  caFile: /etc/headrace/secrets/prometheus/ca.crt
  matchers: {cluster: gpu-use1}
- {name: local, url: "http://prometheus.monitoring:9090", auth: {bearerTokenFile: /etc/headrace/token}}
defaultSource: local
clusters:
- {name: eu, kubeconfigFile: /etc/headrace/clusters/eu/kubeconfig}
routers:
- {frontend: fe-a, service: {namespace: inference, name: headrace-router-fe-a, port: 9090}}
- {frontend: fe-b, source: scrape, urls: ["http://127.0.0.1:9101"]}
- {frontend: fe-c}
watchNamespaces: [inference, batch]
leaderElection: {leaseDuration: 20s}
"""


def test_the_places_of_a_cluster() -> None:
    config = read_config(CLUSTER, "c.yaml")
    assert isinstance(config, OperatorConfig), config
    assert [source.name for source in config.metric_sources] == ["gpu-use1", "local"]
    assert config.clusters[0].kubeconfig_file == "/etc/headrace/clusters/eu/kubeconfig"
    service = config.routers[0].service
    assert service is not None
    assert service.key == "inference/headrace-router-fe-a:9090"
    assert config.watch_namespaces == ("inference", "batch")
    assert (config.leader_election.lease_duration, config.leader_election.renew_deadline) == ("20s", "10s")


@pytest.mark.parametrize(
    ("named", "source"),
    [
        pytest.param("gpu-use1", "gpu-use1", id="named"),
        pytest.param(None, "local", id="the default"),
        pytest.param("scrape", "", id="own pages although there is a default"),
        pytest.param("elsewhere", "elsewhere", id="a name that is not configured stays, and nothing is read"),
    ],
)
def test_which_source_is_read(named: str | None, source: str) -> None:
    config = read_config(CLUSTER, "c.yaml")
    assert isinstance(config, OperatorConfig)
    assert config.source_of(named) == source


def test_a_source_that_is_not_configured_is_told_with_those_that_are() -> None:
    config = read_config(CLUSTER, "c.yaml")
    assert isinstance(config, OperatorConfig)
    assert [config.source_fault(named) for named in ("gpu-use1", None, "scrape")] == ["", "", ""]
    assert config.source_fault("elsewhere") == (
        "spec.metrics.source: 'elsewhere': no such metric source in the operator's configuration; right would be one of"
        " gpu-use1, local, scrape"
    )
    assert OperatorConfig().source_fault("x").endswith("right would be one of scrape")


def test_without_a_default_own_pages_are_read() -> None:
    config = read_config(b"metricSources: [{name: a, url: 'http://a:9090'}]", "c")
    assert isinstance(config, OperatorConfig)
    assert config.source_of(None) == ""
    assert config.source_of("a") == "a"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("metricSources: [{name: scrape, url: 'http://a'}]", "means engines' own pages", id="reserved"),
        pytest.param(
            "metricSources: [{name: a, url: 'http://a'}, {name: a, url: 'http://b'}]", "name 'a' stands twice", id="two"
        ),
        pytest.param("metricSources: [{name: a, url: 'a:9090'}]", "metricSources[0].url: 'a:9090'", id="no scheme"),
        pytest.param(
            "metricSources: [{name: a, url: 'http://a', auth: {}}]", "metricSources[0].auth: right", id="auth"
        ),
        pytest.param(
            "metricSources: [{name: a, url: 'http://a', auth: {bearerTokenFile: /a,"
            " basic: {username: u, passwordFile: /b}}}]",
            "metricSources[0].auth: right would be one of",
            id="both kinds of auth",
        ),
        pytest.param("metricSources: [{name: a, url: 'http://a', caFile: ca.crt}]", "caFile: 'ca.crt'", id="relative"),
        pytest.param(
            "metricSources: [{name: a, url: 'http://a', tenant: {value: \"a\\nHost: b\"}}]", "tenant.value", id="header"
        ),
        pytest.param("metricSources: [{name: a, url: 'http://a', maxAnswer: 1}]", "maxAnswer: 1", id="answer"),
        pytest.param("metricSources: [{name: a, url: 'http://a', timeout: 5m}]", "timeout: '5m'", id="timeout"),
        pytest.param("defaultSource: b", "defaultSource: 'b': no such metric source", id="default"),
        pytest.param(
            "routers: [{frontend: a}]", "routers[0].urls: missing; right would be urls, service", id="routers"
        ),
        pytest.param(
            "routers: [{frontend: a, urls: ['http://x'], service: {namespace: n, name: s, port: 1}}]",
            "urls and service",
            id="both",
        ),
        pytest.param("routers: [{frontend: a, urls: ['http://x'], source: z}]", "source: 'z'", id="routers' source"),
        pytest.param("clusters: [{name: local, kubeconfigFile: /a}]", "'local' is the operator's own", id="local"),
        pytest.param("clusters: [{name: a}]", "clusters[0].kubeconfigFile: missing", id="no kubeconfig"),
        pytest.param("watchNamespaces: [a, a]", "watchNamespaces: 'a' stands twice", id="namespace"),
        pytest.param("leaderElection: {renewDeadline: 15s}", "each shorter than the next", id="deadline"),
        pytest.param("leaderElection: {leaseDuration: 10500ms}", "whole seconds", id="lease"),
    ],
)
def test_faults_of_places(text: str, fault: str) -> None:
    found = read_config(text.encode(), "c")
    assert not isinstance(found, OperatorConfig)
    assert fault in " ".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "metricSources: [{name: a, url: 'http://user:canary@a'}]",
        "metricSources: [{name: a, url: 'http://a', auth: {bearerTokenFile: canary}}]",
        "metricSources: [{name: a, url: 'http://a', auth: canary}]",
        "metricSources: [{name: a, url: 'http://a', auth: {basic: {username: u, passwordFile: canary}}}]",
        "metricSources: [{name: a, url: 'http://a', tenant: canary}]",
        "clusters: [{name: a, kubeconfigFile: canary}]",
        "routers: [{frontend: a, urls: ['http://user:canary@x']}]",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str) -> None:
    found = read_config(text.encode(), "c")
    assert not isinstance(found, OperatorConfig)
    assert "canary" not in " ".join(found)
