"""Prompts as text: how an engine counts and recognises them, and how a workload builds ones that share prefixes.

Between the workload and the simulated engines; the router in between sees ordinary text and needs no knowledge of it.
A token is 4 bytes of UTF-8; a prefix block's key is a chained hash of all text up to its end, so equal leading blocks
have equal keys and nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

BYTES_PER_TOKEN: Final = 4  # English text runs at about 4 bytes a token; exact here by definition


def token_count(text: bytes) -> int:
    """Tokens of a prompt: bytes / 4, rounded up."""
    return -(-len(text) // BYTES_PER_TOKEN)


def prefix_keys(text: bytes, block_tokens: int) -> tuple[bytes, ...]:
    """Keys of the full leading blocks of ``block_tokens`` tokens."""
    size = block_tokens * BYTES_PER_TOKEN
    keys = []
    key = b""
    for start in range(0, len(text) - size + 1, size):
        key = blake2b(key + text[start : start + size], digest_size=16).digest()
        keys.append(key)
    return tuple(keys)


def prompt_text(hash_ids: Sequence[int], tokens: int, block_tokens: int = 512) -> str:
    """ASCII of exactly ``tokens`` tokens whose k-th block of ``block_tokens`` is made from ``hash_ids[k]``.

    Equal leading ids give equal leading text, as in Mooncake's traces; the last block is cut. Ids that are missing at
    the end repeat the last one.

    Raises:
        ValueError: no ids, or fewer than one token.
    """
    if not hash_ids or tokens < 1 or block_tokens < 1:
        raise ValueError(f"{len(hash_ids)} ids, {tokens} tokens, blocks of {block_tokens}: all must be at least 1")
    blocks = -(-tokens // block_tokens)
    ids = [*hash_ids[:blocks], *[hash_ids[-1]] * (blocks - len(hash_ids))]
    text = "".join(_block(number, block_tokens * BYTES_PER_TOKEN) for number in ids)
    return text[: tokens * BYTES_PER_TOKEN]


def _block(number: int, size: int) -> str:
    word = f"b{number} "
    return (word * -(-size // len(word)))[:size]
