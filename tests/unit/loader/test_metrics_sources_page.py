"""docs/metrics-sources.md: its example is a right configuration, and says of targets what the page says."""

from __future__ import annotations

import re

import yaml

from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_check import parse_config
from headrace_operator.loader.prometheus import queries
from headrace_operator.loader.prometheus_match import Index
from headrace_operator.loader.targets import targets
from support.checkout import ROOT
from support.engine_manifests import engine

PAGE = (ROOT / "docs" / "metrics-sources.md").read_text()


def example() -> OperatorConfig:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    config = parse_config(yaml.safe_load(block), "operator.yaml")
    assert isinstance(config, OperatorConfig), config
    return config


def test_the_example() -> None:
    config = example()
    assert [source.name for source in config.metric_sources] == ["local", "gpu-eu"]
    assert [config.source_of(entry.source) for entry in config.routers] == ["local", "gpu-eu"]


def test_the_number_of_queries() -> None:
    found = targets([engine("a", "http://a:1")], example(), {}, {})
    asked = queries(Index([target for target in found if target.source == "local"]), 15.0, {})
    names = {name for query in asked for name in re.findall(r'__name__="([^"]+)"', query)}
    assert f"are {len(names - {'up'})} queries" in PAGE
