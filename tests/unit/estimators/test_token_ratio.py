"""Bytes a token: a slow mean that is told in steps and never leaves what text can be."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.token_ratio import LEAST, MOST, TokenRatio


def after(*answers: tuple[float, float, float]) -> float | None:
    ratio = TokenRatio()
    for at, body_bytes, tokens in answers:
        ratio = ratio.add(at, body_bytes, tokens)
    return ratio.told


def test_unknown_until_enough_tokens_were_seen() -> None:
    assert after((1, 50_000, 10_000)) is None
    assert after((1, 50_000, 10_000), (2, 50_000, 10_100)) == pytest.approx(4.98, abs=0.01)


def test_no_tokens_say_nothing() -> None:
    assert after((1, 90_000, 30_000), (2, 5000, 0)) == 3.0


def test_told_anew_only_when_it_moved_by_a_tenth() -> None:
    """A ratio that wobbles by a few per cent must write no tables."""
    assert after((1, 90_000, 30_000), (2, 100_000, 30_000)) == 3.0
    assert after((1, 90_000, 30_000), (2, 130_000, 30_000)) == pytest.approx(3.67, abs=0.01)


def test_the_past_is_forgotten() -> None:
    assert after((1, 90_000, 30_000), (6001, 150_000, 30_000)) == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize(("body_bytes", "told"), [(1e9, MOST), (1.0, LEAST)])
def test_what_no_text_has_is_cut(body_bytes: float, told: float) -> None:
    """A policy of images in base64 says nothing of how long a text is."""
    assert after((1, body_bytes, 30_000)) == told
