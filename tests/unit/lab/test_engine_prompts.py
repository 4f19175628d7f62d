"""Prompts: exact lengths, and keys that are equal where and only where the text so far is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.engine.prompts import prefix_keys, prompt_text, token_count


@pytest.mark.parametrize(("text", "tokens"), [(b"", 0), (b"a", 1), (b"abcd", 1), (b"abcde", 2), ("ä".encode() * 4, 2)])
def test_a_token_is_four_bytes(text: bytes, tokens: int) -> None:
    assert token_count(text) == tokens


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6),
    st.lists(st.integers(0, 50), min_size=1, max_size=6),
    st.integers(1, 400),
    st.integers(1, 400),
)
def test_keys_are_equal_as_far_as_ids_are(ids: list[int], others: list[int], tokens: int, more: int) -> None:
    texts = [prompt_text(ids, tokens, 64).encode("ascii"), prompt_text(others, more, 64).encode("ascii")]
    assert [token_count(text) for text in texts] == [tokens, more]
    keys = [prefix_keys(text, 64) for text in texts]
    assert [len(k) for k in keys] == [tokens // 64, more // 64]
    padded = [[*i, *[i[-1]] * 10] for i in (ids, others)]
    same = True
    for index, (one, other) in enumerate(zip(*keys, strict=False)):
        same = same and padded[0][index] == padded[1][index]
        assert (one == other) is same


@pytest.mark.parametrize(("ids", "tokens", "block"), [([], 1, 64), ([1], 0, 64), ([1], 1, 0)])
def test_nothing_makes_no_prompt(ids: list[int], tokens: int, block: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        prompt_text(ids, tokens, block)
