"""What requests cost in tokens when nobody says so: ratios learned from the answers whose usage does.

On the request path, at the end of a request. Offered demand must not fall because requests are refused or fail, so a
request without an answer is given the mean of its kind; while no mean is known it isn't counted at all (the ended
counter says for how many requests tokens were counted). Nothing unknown counts as zero. Must not grow: one entry a
model and prompt class of the table.
"""

from __future__ import annotations

from typing import Final

# Weight of a new sample: the mean follows about the last fifty answers.
GAIN: Final = 0.02
DEFAULT_BYTES_PER_TOKEN: Final = 4.0


class Mean:
    """An exponentially weighted mean that starts as the plain mean of its first samples.

    count: of the samples so far; none: ``value`` says nothing.
    """

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0.0

    def add(self, sample: float) -> None:
        """Take one sample."""
        self.count += 1.0
        weight = 1.0 / self.count
        if weight < GAIN:
            weight = GAIN
        self.value += weight * (sample - self.value)


class Learned:
    """Ratios of one model and prompt class."""

    __slots__ = ("_bytes_per_token", "_output", "_tokens_per_event")

    def __init__(self) -> None:
        self._bytes_per_token = Mean()
        self._tokens_per_event = Mean()
        self._output = Mean()

    def answered(self, body_bytes: int, events: int, *, input_tokens: int | None, output_tokens: int | None) -> None:
        """An answer that ended well, with what its usage states."""
        if input_tokens:
            self._bytes_per_token.add(body_bytes / input_tokens)
        if output_tokens is not None:
            if events:
                self._tokens_per_event.add(output_tokens / events)
            self._output.add(output_tokens)
        elif events:
            self._output.add(self.output_of(events))

    def input_of(self, body_bytes: int, table_ratio: float) -> float:
        """Input tokens of a body; ``table_ratio`` (bytes per token) holds until something was learned."""
        ratio = self._bytes_per_token.value  # 0.0 while nothing was learned
        if not ratio:
            ratio = table_ratio or DEFAULT_BYTES_PER_TOKEN
        return body_bytes / ratio

    def output_of(self, events: int) -> float:
        """Output tokens of so many events with content."""
        ratio = self._tokens_per_event
        return events * (ratio.value if ratio.count else 1.0)

    def unanswered(self) -> float | None:
        """Output tokens to count for a request that got no answer; None while no answer has come."""
        output = self._output
        return output.value if output.count else None
