"""Engines' and routers' metrics pages to figures, on the releases' own pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_operator.estimators.replica import PageReading, ReplicaWindow, combine
from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.pages import engine_page, router_page
from headrace_operator.loader.source import DemandKey, LengthKey

PAGES = Path(__file__).resolve().parents[2] / "data" / "engine_metrics"
LLAMA = frozenset({"meta-llama/Llama-3.1-8B-Instruct"})
M = frozenset({"m"})
VLLM, SGLANG = names_of("vLLM"), names_of("SGLang")


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "runtime", "expected"),
    [
        pytest.param(
            "vllm_0.33.0",
            "vLLM",
            {
                "running": 14.0,
                "waiting": 0.0,
                "kv_usage": 0.04434,
                "prompt_tokens": 1634175.0,
                "generation_tokens": 387988.0,
                "finished": 1505.0,
                "failed": 0.0,
                "prefix_hits": 391616.0,
                "prefix_queries": 1634175.0,
                "ttft_count": 1519.0,
                "tbot_count": 386469.0,
            },
            id="vLLM 0.33",
        ),
        pytest.param(
            "vllm_0.9.2",
            "vLLM",
            {"kv_usage": 0.04434, "prefix_hits": 391616.0, "tbot_count": 386469.0, "finished": 1505.0},
            id="vLLM 0.9.2: both names of the cache's usage, the old one of the token latency",
        ),
        pytest.param(
            "vllm_0.6.6.post1_V0",
            "vLLM",
            {"running": 14.0, "waiting": 3.0, "kv_usage": 0.4311, "hit_rate": 0.2397, "tbot_count": 279780.0},
            id="vLLM 0.6.6: no label engine",
        ),
        pytest.param(
            "vllm_0.33.0_dp2_multiprocess",
            "vLLM",
            {"running": 12.0, "kv_usage": 0.020046, "prompt_tokens": 1633139.0, "ttft_count": 1518.0},
            id="vLLM with two data-parallel ranks",
        ),
        pytest.param(
            "sglang_0.5.23",
            "SGLang",
            {
                "running": 13.0,
                "waiting": 0.0,
                "kv_usage": 0.0415,
                "hit_rate": 0.2329,
                "prefix_hits": 378117.0,
                "prefix_queries": 1616906.0,
                "finished": 1505.0,
                "ttft_count": 1519.0,
                "tbot_count": 386524.0,
            },
            id="SGLang 0.5.23",
        ),
        pytest.param(
            "sglang_0.4.6.post5",
            "SGLang",
            {"running": 13.0, "kv_usage": 0.0415, "prefix_hits": 378117.0, "finished": 1505.0},
            id="SGLang 0.4.6",
        ),
    ],
)
def test_real_pages(name: str, runtime: str, expected: dict[str, float]) -> None:
    read = engine_page(page(name), names_of(runtime), LLAMA)
    assert read.problem == ""
    assert {key: read.values.get(key) for key in expected} == {  # type: ignore[call-overload]
        key: pytest.approx(value, abs=1e-5) for key, value in expected.items()
    }


def test_two_real_pages_fifteen_seconds_apart() -> None:
    window = ReplicaWindow(60.0)
    window.observe(PageReading(0.0, engine_page(page("vllm_0.33.0"), VLLM, LLAMA).values))
    window.observe(PageReading(15.0, engine_page(page("vllm_0.33.0_plus15s"), VLLM, LLAMA).values))
    seen = combine([window])
    assert (seen.ttft_count, seen.tbot_count) == (67.0, 22383.0)
    assert seen.ttft == pytest.approx(0.05166, abs=1e-5)
    assert seen.tbot == pytest.approx(0.007858, abs=1e-6)
    assert seen.request_rate == pytest.approx(70 / 15)
    assert seen.error_share == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.91\n', 0.91, id="a: the new name"),
        pytest.param('vllm:gpu_cache_usage_perc{model_name="m"} 0.20\n', 0.20, id="b: the old name"),
        pytest.param(
            'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:kv_cache_usage_perc{model_name="m"} 0.5\n',
            0.5,
            id="c: both names are one signal",
        ),
        pytest.param('sglang:token_usage{model_name="m"} 0.4\n', None, id="d: another family is unknown"),
        pytest.param(
            'vllm:kv_cache_usage_perc{model_name="m"} 0\nvllm:gpu_cache_usage_perc{model_name="m"} 0.9\n',
            0.0,
            id="zero is a value",
        ),
    ],
)
def test_renamed_metrics(text: str, expected: float | None) -> None:
    """Case PRM-01: names change with releases; both at once are not added, none known is unknown.

    https://github.com/vllm-project/vllm/pull/18354
    """
    assert engine_page(text, VLLM, M).values.get("kv_usage") == expected


def test_sglang_has_its_own_mapping() -> None:
    """Case PRM-01, engine d."""
    assert engine_page('sglang:token_usage{model_name="m"} 0.4\n', SGLANG, M).values == {"kv_usage": 0.4}


def test_names_are_configurable() -> None:
    names = names_of("Custom", [("Custom", "running", ("my_running",)), ("vLLM", "waiting", ("no",))])
    assert engine_page("my_running 3\n", names, M).values == {"running": 3.0}
    first = names_of("vLLM", [("vLLM", "running", ("my_running",))])
    assert engine_page('vllm:num_requests_running{model_name="m"} 9\nmy_running 3\n', first, M).values == {
        "running": 3.0
    }


RANKS = """vllm:num_requests_waiting{engine="0",model_name="m"} 12
vllm:num_requests_waiting{engine="1",model_name="m"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.9
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1
"""


@pytest.mark.parametrize("text", [RANKS, "\n".join(reversed(RANKS.splitlines())) + "\n"], ids=["as is", "reversed"])
def test_ranks(text: str) -> None:
    """Case PRM-02: counts of data-parallel ranks are added, ratios averaged, in any order of lines.

    https://github.com/volcano-sh/kthena/pull/1782
    """
    assert engine_page(text, VLLM, M).values == {"waiting": 12.0, "kv_usage": 0.5}


def test_other_models_on_the_same_page_are_not_mixed_in() -> None:
    """Case PRM-02: series of another model_name on the same pod stay out."""
    text = RANKS + 'vllm:num_requests_waiting{engine="0",model_name="other"} 50\n'
    assert engine_page(text, VLLM, M).values["waiting"] == 12.0


def test_the_same_series_twice_counts_once() -> None:
    """Case PRM-05: a series that stands twice (an HA pair) counts once.

    https://github.com/openshift/cluster-monitoring-operator/pull/1553
    """
    line = 'vllm:num_requests_running{model_name="m"} 7\n'
    assert engine_page(line + line, VLLM, M).values == {"running": 7.0}


def test_tensor_parallel_ranks_repeat_and_priorities_have_a_total() -> None:
    text = """sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0",priority=""} 5
sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0",priority="1"} 3
sglang:num_running_reqs{model_name="m",tp_rank="1",pp_rank="0",priority=""} 5
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0"} 2
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="1"} 3
"""
    assert engine_page(text, SGLANG, M).values == {"running": 5.0, "waiting": 5.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e400"])
def test_what_is_no_measurement_is_unknown(value: str) -> None:
    """Case LP-04: costs of NaN, Inf, -1 and 1e400 are unknown; the other signals stay.

    https://github.com/coin-or/pulp/issues/855
    """
    text = f'vllm:num_requests_running{{model_name="m"}} {value}\nvllm:num_requests_waiting{{model_name="m"}} 2\n'
    assert engine_page(text, VLLM, M).values == {"waiting": 2.0}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "no known metric", id="empty"),
        pytest.param("<html><body>log in</body></html>\n", "no known metric", id="c: a login page"),
        pytest.param("go_goroutines 12\n", "no known metric", id="another program"),
        pytest.param('vllm:num_requests_running{model_name="x"} 1\n', "the page is of x, not of m", id="another model"),
        pytest.param('vllm:num_requests_running{model_name="m"} 12', "no known metric", id="g: cut in its only line"),
        pytest.param('vllm:num_requests_running{model_name="m} 12\n', "can't be parsed", id="broken line"),
        pytest.param("vllm:num_requests_running twelve\n", "can't be parsed", id="no number"),
    ],
)
def test_pages_that_say_nothing(text: str, problem: str) -> None:
    """Case PRM-04: errors and partial answers are not "nothing is running".

    https://github.com/ray-project/ray/pull/56851
    """
    read = engine_page(text, VLLM, M)
    assert read.values == {}
    assert problem in read.problem


def test_a_broken_line_costs_one_signal() -> None:
    text = 'vllm:num_requests_running{model_name="m"} x\nvllm:num_requests_waiting{model_name="m"} 4\n'
    read = engine_page(text, VLLM, M)
    assert read.values == {"waiting": 4.0}
    assert read.problem == "lines of vllm:num_requests_running can't be parsed"


WHO = 'policy_namespace="i",policy="chat",frontend="fe",model="m",priority="hi"'
ROUTER = f"""headrace_offered_requests_total{{{WHO},prompt_class="0"}} 4
headrace_offered_requests_total{{{WHO},prompt_class="1"}} 5
headrace_client_retries_total{{{WHO},prompt_class="0"}} 2
headrace_ejected_endpoints{{engine="i/e"}} 1
headrace_requests_total{{engine="i/e",outcome="ok"}} 7
headrace_requests_total{{engine="i/e",outcome="cut"}} 1
headrace_requests_total{{outcome="ok"}} 9
"""
KEY = DemandKey("i/chat", "m", "hi", "0")
LONG = DemandKey("i/chat", "m", "hi", "1")
USAGE = """headrace_usage_body_bytes_total{model="m",frontend="fe",policy="a"} 30
headrace_usage_body_bytes_total{model="m",frontend="fe",policy="b"} 50
headrace_usage_input_tokens_total{model="m",frontend="fe",policy="a"} 20
headrace_usage_input_tokens_total{model="n",frontend="fe",policy="a"} NaN
"""


def test_router_page_tells_prompt_classes_apart() -> None:
    counts, problem = router_page(ROUTER, "fe")
    assert problem == ""
    assert (counts.offered, counts.client_retries, counts.ended) == ({KEY: 4.0, LONG: 5.0}, {KEY: 2.0}, {})
    assert (counts.ejected, counts.sent) == ({"i/e": 1.0}, {"i/e": 8.0})


def test_router_page_has_lengths() -> None:
    who = 'policy_namespace="i",policy="chat",model="m"'
    text = "".join(
        f'headrace_prompt_tokens_bucket{{{who},frontend="{frontend}",le="{bound}"}} {count}\n'
        for frontend, bound, count in (
            ("fe", "100.0", 3),
            ("fe", "+Inf", 5),
            ("fe", "200.0", "NaN"),
            ("fe", "much", 4),
            ("fe", "-1", 4),
            ("other", "100.0", 9),
        )
    )
    counts, problem = router_page(ROUTER + text, "fe")
    assert problem == ""
    assert counts.lengths == {LengthKey("i/chat", "m", 100.0): 3.0, LengthKey("i/chat", "m", float("inf")): 5.0}
    assert router_page(ROUTER + text + "headrace_prompt_tokens_bucket{ 1\n", "fe")[0].lengths == {}


def test_router_page_has_usage_by_model() -> None:
    counts, problem = router_page(ROUTER + USAGE, "fe")
    assert problem == ""
    assert (counts.usage_bytes, counts.usage_tokens) == ({"m": 80.0}, {"m": 20.0})
    broken, problem = router_page(ROUTER + USAGE + "headrace_usage_body_bytes_total{ 1\n", "fe")
    assert broken.usage_bytes == {}
    assert "can't be parsed" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no headrace_offered_requests_total on the page"),
        (ROUTER.replace('frontend="fe"', 'frontend="other"'), "the page is of front-end other, not of fe"),
        (ROUTER + "headrace_offered_requests_total{ 3\n", "can't be parsed"),
    ],
)
def test_router_pages_that_are_wrong(text: str, problem: str) -> None:
    assert problem in router_page(text, "fe")[1]


def test_router_values_that_are_no_measurement_are_left_out() -> None:
    assert router_page(ROUTER.replace("} 4", "} NaN"), "fe")[0].offered == {LONG: 5.0}
