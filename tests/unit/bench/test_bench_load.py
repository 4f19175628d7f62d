"""What load.c prints is read strictly, and wrong answers make no figure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.router.load import parse_load
from bench.router.processes import BenchFailed


def printed(**changed: Any) -> str:
    errors = {"status": 0, "length": 0, "id": 0, "cut": 0, "connect": 0, "body": 0}
    whole: dict[str, Any] = {
        "requests": 2000, "events": 0, "seconds": 2.0, "errors": errors, "first_error": "",
        "latency_us": {"p50": 10.0, "max": 20.0}, "cpu": {"17": 0.5, "18": 0.25, "load": 0.1},
        "reconnects": 0, "late": 0, "open": 0, "samples": 2000,
    }  # fmt: skip
    return json.dumps(whole | changed)


def test_cpu_is_summed_over_the_processes_asked_for() -> None:
    load = parse_load(printed())
    assert load.cpu_of([17, 18]) == 0.75
    assert load.cpu_of([99]) == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "killed", "[]", "{}", printed(seconds=0), printed(errors=None), printed().replace("2000", "NaN")],
)
def test_what_is_no_result_is_named(text: str) -> None:
    with pytest.raises(BenchFailed, match="load"):
        parse_load(text)


def test_a_proxy_that_answers_wrongly_gets_no_figure() -> None:
    wrong = parse_load(printed(errors={"status": 3, "cut": 0}, first_error="HTTP/1.1 503"))
    with pytest.raises(BenchFailed, match=r"envoy: 3 status of 2000 answers.*503"):
        wrong.refuse_errors("envoy")
    parse_load(printed(errors={"status": 2})).refuse_errors("envoy")


def test_no_answer_at_all_is_no_figure() -> None:
    with pytest.raises(BenchFailed, match="no answer"):
        parse_load(printed(requests=0)).refuse_errors("litellm")
