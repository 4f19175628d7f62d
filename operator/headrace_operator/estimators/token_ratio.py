"""Bytes of body a token of input, of one model, learned from answers that stated their usage.

On the engine-signal path. Routers judge a prompt's length by it (prompt classes, maxModelLen), so it is steady: a mean
over ten minutes that is told anew only when it has moved by a tenth. Must not believe a ratio that no text has: bodies
full of images or near-empty ones are cut to what text can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_operator.estimators.demand import DecayingSum

MEMORY: Final = 600.0  # seconds
MIN_TOKENS: Final = 20_000.0
STEP: Final = 0.1  # of the ratio
# JSON of any language, with short and with long prompts.
LEAST: Final = 1.0
MOST: Final = 16.0
NONE_SEEN: Final = DecayingSum(tau=MEMORY)


@dataclass(frozen=True, slots=True)
class TokenRatio:
    """Body bytes and input tokens of the last minutes; told: the ratio that is said, None while unknown."""

    body_bytes: DecayingSum = NONE_SEEN
    tokens: DecayingSum = NONE_SEEN
    told: float | None = None

    def add(self, at: float, body_bytes: float, tokens: float) -> TokenRatio:
        """The ratio after answers of so many bytes and tokens that ended until ``at``."""
        if tokens <= 0:
            return self
        seen = TokenRatio(self.body_bytes.add(at, body_bytes), self.tokens.add(at, tokens), self.told)
        if seen.tokens.value < MIN_TOKENS:
            return seen
        ratio = round(min(MOST, max(LEAST, seen.body_bytes.value / seen.tokens.value)), 2)
        if seen.told is not None and abs(ratio - seen.told) < STEP * seen.told:
            return seen
        return TokenRatio(seen.body_bytes, seen.tokens, ratio)
