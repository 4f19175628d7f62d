"""Series of a Prometheus to samples: which replica they are of, what counts once, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.prometheus import queries, quoted
from headrace_operator.loader.prometheus_http import RangeSeries
from headrace_operator.loader.prometheus_match import Index, read_ups
from headrace_operator.loader.prometheus_read import Answers, Reader
from headrace_operator.loader.source import EngineTarget, PageTarget, RouterTarget, TargetSample

VLLM, SGLANG = names_of("vLLM"), names_of("SGLang")
RUNNING, WAITING, KV = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"
DONE = "vllm:request_success_total"


def series(name: str, *values: tuple[float, float | str], **labels: str) -> RangeSeries:
    return RangeSeries({"__name__": name, **labels}, [(at, str(value)) for at, value in values])


def engine(name: str, host: str = "", pod: str = "", names: Any = VLLM, **selector: str) -> EngineTarget:
    url = f"http://{host}:8000" if host else ""
    return EngineTarget(
        f"inf/{name}", url, names, frozenset({"m"}), "s", f"inf/{pod}" if pod else "", tuple(sorted(selector.items()))
    )


class Source:
    """Rounds of one source; the server's clock is 1,000 s ahead of the steady one."""

    def __init__(self, *targets: PageTarget) -> None:
        self.index = Index(targets)
        self.reader = Reader("s", ("prometheus_replica",))

    def round(
        self, *found: RangeSeries, up: Iterable[RangeSeries] = (), at: float = 100.0, complete: bool = True
    ) -> dict[str, list[TargetSample]]:
        ups = read_ups([series("up", *one.values, **one.metric) for one in up])
        by_target: dict[str, list[TargetSample]] = {}
        for sample in self.reader.read(self.index, Answers(ups, list(found), at, -1000.0, complete)):
            target = sample.target
            assert isinstance(target, EngineTarget | RouterTarget)
            name = target.engine if isinstance(target, EngineTarget) else target.frontend
            by_target.setdefault(f"{name} {target.url}", []).append(sample)
        return by_target


def up(value: float, *, at: float = 1090.0, **labels: str) -> RangeSeries:
    return RangeSeries(labels, [(at, f"{value:g}")])


A = {"job": "vllm", "instance": "10.0.0.5:9400", "namespace": "inf", "pod": "a-1", "model_name": "m"}


def test_a_scrape_is_a_page_with_its_own_time() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    found = source.round(
        series(RUNNING, (1080.0, 3), (1095.0, 4), **A), series(WAITING, (1080.0, 0), (1095.0, 1), **A), up=[up(1, **A)]
    )
    samples = found["inf/a http://10.0.0.5:8000"]
    assert [(sample.at, sample.outcome, dict(sample.values)) for sample in samples] == [
        (80.0, "Read", {"running": 3.0, "waiting": 0.0}),
        (95.0, "Read", {"running": 4.0, "waiting": 1.0}),
    ]


def test_a_page_is_given_once() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    source.round(series(RUNNING, (1095.0, 4), **A))
    assert source.round(series(RUNNING, (1095.0, 4), **A)) == {}
    later = source.round(series(RUNNING, (1095.0, 4), (1110.0, 5), **A))
    assert [sample.at for sample in later["inf/a http://10.0.0.5:8000"]] == [110.0]


def test_unscraped_is_unknown_and_zero_is_idle() -> None:
    """Case STA-01: an engine without series is unknown, never the idlest; a real 0 is idle.

    https://github.com/llm-d/llm-d-router/pull/2848
    """
    source = Source(engine("a", "10.0.0.5", "a-1"), engine("c", "10.0.0.7", "c-1"))
    found = source.round(series(RUNNING, (1095.0, 0), **A), series(KV, (1095.0, "NaN"), **A))
    assert found["inf/a http://10.0.0.5:8000"][0].values == {"running": 0.0}
    missed = found["inf/c http://10.0.0.7:8000"][0]
    assert (missed.outcome, missed.values, missed.problem) == ("Gone", {}, "metric source s has no series of it")


def test_a_partial_answer_says_nothing_of_who_is_missing() -> None:
    """Case PRM-04 e: with a warning the engines that are there are read, the others are not gone.

    https://github.com/Project-HAMi/HAMi-WebUI/issues/220
    """
    source = Source(engine("a", "10.0.0.5", "a-1"), engine("c", "10.0.0.7", "c-1"))
    found = source.round(series(RUNNING, (1095.0, 1), **A), complete=False)
    assert list(found) == ["inf/a http://10.0.0.5:8000"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_restarted_pod_has_one_series(order: int) -> None:
    """Case PRM-05: the series of the current address counts, never the sum of both.

    https://github.com/openchoreo/openchoreo/issues/3430
    """
    source = Source(engine("a", "10.0.0.9", "a-1"))
    both = [
        series(RUNNING, (1095.0, 7), **A),
        series(RUNNING, (1094.0, 1), **A | {"instance": "10.0.0.9:9400"}),
    ][::order]
    assert [dict(one.values) for one in source.round(*both)["inf/a http://10.0.0.9:8000"]] == [{"running": 1.0}]


def test_an_address_that_another_pod_took_over() -> None:
    """Case STA-04: identity is the pod: figures of another pod at the same address are not the engine's.

    https://github.com/kubernetes/kubernetes/issues/109414
    """
    source = Source(engine("a", "10.0.0.5", "a-2"))
    found = source.round(series(RUNNING, (1095.0, 7), **A))
    assert found["inf/a http://10.0.0.5:8000"][0].outcome == "Gone"


def test_copies_of_a_pair_count_once_and_do_not_alternate() -> None:
    """Case PRM-05: HA copies count once. https://github.com/prometheus/prometheus/issues/9221"""
    source = Source(engine("a", "10.0.0.5", "a-1"))

    def pair(first: float, second: float) -> list[RangeSeries]:
        return [
            series(DONE, (first, 100 + first), **A, prometheus_replica="0"),
            series(DONE, (second, 90 + second), **A, prometheus_replica="1"),
        ]

    (one,) = source.round(*pair(1090.0, 1095.0))["inf/a http://10.0.0.5:8000"]
    assert (one.at, one.values["finished"]) == (95.0, 1185.0)
    (two,) = source.round(*pair(1112.0, 1110.0))["inf/a http://10.0.0.5:8000"]
    assert (two.at, two.values["finished"]) == (110.0, 1200.0)
    (three,) = source.round(*pair(1160.0, 1110.0))["inf/a http://10.0.0.5:8000"]
    assert (three.at, three.values["finished"]) == (160.0, 1260.0)


def test_two_jobs_that_scrape_one_pod_count_once() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    found = source.round(series(RUNNING, (1095.0, 4), **A), series(RUNNING, (1096.0, 4), **A | {"job": "again"}))
    assert [dict(one.values) for one in found["inf/a http://10.0.0.5:8000"]] == [{"running": 4.0}]


def test_data_parallel_ranks() -> None:
    """Case PRM-02: counts are added, ratios averaged; another model's series on the pod are left out.

    https://github.com/volcano-sh/kthena/pull/1782
    """
    source = Source(engine("a", "10.0.0.5", "a-1"))
    found = source.round(
        *(series(WAITING, (1095.0, value), **A, engine=rank) for rank, value in (("0", 12), ("1", 0))),
        *(series(KV, (1095.0, value), **A, engine=rank) for rank, value in (("0", 0.9), ("1", 0.1))),
        series(WAITING, (1095.0, 99), **A | {"model_name": "other"}),
    )
    assert found["inf/a http://10.0.0.5:8000"][0].values == {"waiting": 12.0, "kv_usage": 0.5}


def test_renamed_metrics() -> None:
    """Case PRM-01: the new name before the old one, never their sum; nothing known is unknown, not 0.

    https://github.com/vllm-project/vllm/pull/18354
    """
    pods = {name: {**A, "pod": f"{name}-1", "instance": f"10.0.1.{at}:1"} for at, name in enumerate("abcd", 1)}
    source = Source(*(engine(name, f"10.0.1.{at}", f"{name}-1") for at, name in enumerate("abcd", 1)))
    found = source.round(
        series(KV, (1095.0, 0.91), **pods["a"], engine="0"),
        series("vllm:gpu_cache_usage_perc", (1095.0, 0.20), **pods["b"]),
        series(KV, (1095.0, 0.5), **pods["c"]),
        series("vllm:gpu_cache_usage_perc", (1095.0, 0.5), **pods["c"]),
        series("sglang:token_usage", (1095.0, 0.4), **pods["d"]),
    )
    known = {name.split()[0]: samples[0].values.get("kv_usage") for name, samples in found.items()}
    assert known == {"inf/a": 0.91, "inf/b": 0.2, "inf/c": 0.5, "inf/d": None}


def test_a_target_that_is_down() -> None:
    """A dead target's last samples stay in the answer for a while; ``up`` says that they are no news."""
    source = Source(engine("a", "10.0.0.5", "a-1"))
    (sample,) = source.round(series(RUNNING, (1070.0, 7), **A), up=[up(0, **A)])["inf/a http://10.0.0.5:8000"]
    assert (sample.at, sample.outcome, sample.problem) == (100.0, "Down", "metric source s: up is 0")


def test_one_of_two_jobs_that_is_down_is_no_news() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    other = A | {"job": "other"}
    found = source.round(series(RUNNING, (1095.0, 7), **A), up=[up(0, **other), up(1, **A)])
    assert [sample.outcome for sample in found["inf/a http://10.0.0.5:8000"]] == ["Read"]


def test_the_newest_up_of_all_copies_counts() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    ups = [up(0, at=1080.0, **A, prometheus_replica="0"), up(1, at=1095.0, **A, prometheus_replica="1")]
    assert source.round(series(RUNNING, (1095.0, 7), **A), up=ups)["inf/a http://10.0.0.5:8000"][0].outcome == "Read"


def test_labels_that_scraping_renamed() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"), RouterTarget("fe", "", "s"))
    found = source.round(
        series(RUNNING, (1095.0, 3), **A | {"model_name": "wrong", "exported_model_name": "m"}),
        series(
            "headrace_offered_requests_total",
            (1095.0, 70),
            job="r",
            instance="10.0.0.8:9090",
            policy="x",
            exported_policy="chat",
            frontend="fe",
            policy_namespace="inf",
            model="m",
        ),
    )
    assert found["inf/a http://10.0.0.5:8000"][0].values == {"running": 3.0}
    counts = found["fe 10.0.0.8:9090"][0].counts
    assert counts is not None
    assert [(key.policy, value) for key, value in counts.offered.items()] == [("inf/chat", 70.0)]


def test_all_series_of_a_router_that_is_found() -> None:
    """Only some of a router's series name its front-end; which engines it can't reach is said without."""
    at = {"job": "r", "instance": "10.0.0.8:9090"}
    found = Source(RouterTarget("fe", "", "s")).round(
        series("headrace_ejected_endpoints", (1095.0, 1), **at, engine="inf/a"),
        series("headrace_table_revision", (1095.0, 7), **at, frontend="fe"),
        series("headrace_ejected_endpoints", (1095.0, 1), job="r", instance="other:1", engine="inf/b"),
    )
    (sample,) = found["fe 10.0.0.8:9090"]
    assert sample.counts is not None
    assert sample.counts.ejected == {"inf/a": 1.0}
    assert len(found) == 1


class TestFoundBySelector:
    """Engines in other clusters: the selector finds their replicas, which come and go."""

    def test_each_instance_is_a_replica(self) -> None:
        source = Source(engine("far", job="vllm", cluster="eu"), engine("far2", job="vllm", cluster="us"))
        eu, us = A | {"cluster": "eu"}, A | {"cluster": "us", "instance": "10.9.0.1:1"}
        found = source.round(
            series(RUNNING, (1095.0, 1), **eu),
            series(RUNNING, (1095.0, 2), **eu | {"instance": "10.0.0.6:9400"}),
            series(RUNNING, (1095.0, 3), **us),
            series(RUNNING, (1095.0, 9), **A),
        )
        values = {name: samples[0].values["running"] for name, samples in found.items()}
        assert values == {"inf/far 10.0.0.5:9400": 1.0, "inf/far 10.0.0.6:9400": 2.0, "inf/far2 10.9.0.1:1": 3.0}

    def test_one_that_left(self) -> None:
        source = Source(engine("far", job="vllm"))
        other = A | {"instance": "10.0.0.6:9400"}
        source.round(series(RUNNING, (1095.0, 1), **A), series(RUNNING, (1095.0, 1), **other))
        found = source.round(series(RUNNING, (1110.0, 1), **A))
        assert {name: samples[0].outcome for name, samples in found.items()} == {
            "inf/far 10.0.0.5:9400": "Read",
            "inf/far 10.0.0.6:9400": "Gone",
        }

    def test_one_that_is_down_stays_a_replica(self) -> None:
        source = Source(engine("far", job="vllm"))
        source.round(series(RUNNING, (1095.0, 1), **A), up=[up(1, **A)])
        for _ in range(2):
            found = source.round(series(RUNNING, (1095.0, 1), **A), up=[up(0, at=1110.0, **A)])
            assert found["inf/far 10.0.0.5:9400"][0].outcome == "Down"

    def test_a_partial_answer_takes_none_away(self) -> None:
        source = Source(engine("far", job="vllm"))
        source.round(series(RUNNING, (1095.0, 1), **A))
        assert source.round(complete=False) == {}
        assert source.round()["inf/far 10.0.0.5:9400"][0].outcome == "Gone"

    def test_nothing_found(self) -> None:
        (sample,) = Source(engine("far", job="vllm", cluster="eu")).round()["inf/far "]
        assert sample.problem == "metric source s has no series of it with cluster=eu, job=vllm"


def test_two_engines_on_one_machine() -> None:
    """An address without a pod is a whole address: another port is another engine."""
    source = Source(engine("a", "10.0.0.5"), EngineTarget("inf/b", "http://10.0.0.5:8001", VLLM, frozenset({"m"}), "s"))
    found = source.round(series(RUNNING, (1095.0, 3), job="j", instance="10.0.0.5:8001"))
    assert {name: samples[0].outcome for name, samples in found.items()} == {
        "inf/a http://10.0.0.5:8000": "Gone",
        "inf/b http://10.0.0.5:8001": "Read",
    }


def test_a_selector_narrows_a_services_pods() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1", container="vllm"))
    found = source.round(
        series(RUNNING, (1095.0, 3), **A, container="vllm"), series(RUNNING, (1095.0, 9), **A, container="sidecar")
    )
    assert [dict(one.values) for one in found["inf/a http://10.0.0.5:8000"]] == [{"running": 3.0}]


@pytest.mark.parametrize("instance", ["", "[", "[::1]:1", "a:b:c", "http://x"])
def test_instances_that_are_no_addresses(instance: str) -> None:
    source = Source(engine("a", "10.0.0.5"))
    found = source.round(series(RUNNING, (1095.0, 3), job="j", instance=instance), up=[up(1, instance=instance)])
    assert found["inf/a http://10.0.0.5:8000"][0].outcome == "Gone"


def test_a_value_that_is_no_number() -> None:
    source = Source(engine("a", "10.0.0.5", "a-1"))
    found = source.round(series(RUNNING, (1095.0, "x"), **A), series(WAITING, (1095.0, "+Inf"), **A))
    assert found["inf/a http://10.0.0.5:8000"][0].outcome == "Answered"


def test_few_queries_for_any_number_of_engines() -> None:
    index = Index([engine(f"e{at}", f"10.0.{at // 250}.{at % 250}", f"e{at}-1") for at in range(5000)])
    asked = queries(index, 15.0, {"cluster": 'a"b\\'})
    assert asked[0] == '{__name__="up",cluster="a\\"b\\\\"}[15000ms]'
    assert len(asked) == 1 + len(index.names()) < 25


def test_routers_are_asked_for_only_where_they_are_read_here() -> None:
    assert not any("headrace_offered" in query for query in queries(Index([engine("a", "10.0.0.5")]), 15.0, {}))
    (asked,) = [
        query for query in queries(Index([RouterTarget("fe", "", "s")]), 15.0, {}) if "headrace_offered" in query
    ]
    assert asked.startswith('{__name__=~"headrace_')


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", '"plain"'), ('a"b', '"a\\"b"'), ("a\\", '"a\\\\"'), ("a\nb", '"a\\nb"'), ("é", '"é"')],
)
def test_label_values_are_escaped(text: str, expected: str) -> None:
    """The library puts a value between quotes as it is: a quote in it would end the selector."""
    assert quoted(text) == expected
