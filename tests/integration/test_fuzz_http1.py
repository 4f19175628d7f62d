"""Fuzzing of http1's parsers from a kept corpus (tests/fuzz/corpus): about a minute here, ten in make test-long.

Bounded by examples, not by the clock. A case that fails goes into the corpus as a file of its own.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from support import http1_bytes as some
from support.examples import examples
from support.http1_checks import check_chunks, check_request, check_requests, check_response, check_responses

FUZZ = settings(
    max_examples=examples(4_000),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)


@pytest.mark.timeout(1_200)
@FUZZ
@given(some.tampered(some.kept("request")), some.CUTS)
def test_request_heads(raw: bytes, cuts: list[int]) -> None:
    check_request(raw, cuts)


@pytest.mark.timeout(1_200)
@FUZZ
@given(some.tampered(some.kept("response")))
def test_response_heads(raw: bytes) -> None:
    check_response(raw)
    check_response(raw, to_head=True)


@pytest.mark.timeout(1_200)
@settings(FUZZ, max_examples=examples(1_000))
@given(some.sequences(some.tampered(some.kept("request")), some.LINES))
def test_requests_one_after_the_other(raws: list[bytes]) -> None:
    check_requests(raws)


@pytest.mark.timeout(1_200)
@settings(FUZZ, max_examples=examples(1_000))
@given(some.sequences(some.tampered(some.kept("response")), some.LINES))
def test_answers_one_after_the_other(raws: list[bytes]) -> None:
    check_responses([(raw, False) for raw in raws])


@pytest.mark.timeout(1_200)
@FUZZ
@given(some.tampered(some.kept("chunks")), some.CUTS)
def test_chunks(data: bytes, cuts: list[int]) -> None:
    check_chunks(data, cuts)


@pytest.mark.parametrize("folder", ["request", "response", "chunks"])
def test_the_corpus_itself(folder: str) -> None:
    """Cut at every byte."""
    files = sorted((some.CORPUS / folder).iterdir())
    assert files
    for path in files:
        raw = path.read_bytes()
        if folder == "response":
            check_response(raw)
        else:
            check = check_request if folder == "request" else check_chunks
            check(raw, range(len(raw)))
