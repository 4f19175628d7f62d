"""The parts of an answer that are decoded: structs of msgspec, of any of the three APIs only what counts.

On the request path. They stand alone because msgspec reads their annotations when they are made, which a compiled
module hasn't got (docs/adr/0021).
"""

from __future__ import annotations

import msgspec


class StatedUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Delta(msgspec.Struct):
    content: object = None
    reasoning: object = None
    reasoning_content: object = None
    refusal: object = None
    tool_calls: object = None
    function_call: object = None
    audio: object = None

    def says_something(self) -> bool:
        return bool(
            self.content
            or self.tool_calls
            or self.reasoning_content
            or self.reasoning
            or self.refusal
            or self.function_call
            or self.audio
        )


class Choice(msgspec.Struct):
    delta: Delta | None = None
    text: str | None = None

    def says_something(self) -> bool:
        return bool(self.text) or (self.delta is not None and self.delta.says_something())


class Inner(msgspec.Struct):
    usage: StatedUsage | None = None


class Event(msgspec.Struct):
    """The few fields of any of the three APIs that count; others are skipped, not built."""

    type: str | None = None
    choices: list[Choice] | None = None
    usage: StatedUsage | None = None
    response: Inner | None = None
    message: Inner | None = None

    def says_something(self) -> bool:
        if self.choices:
            return any(choice.says_something() for choice in self.choices)
        return self.type is not None and (self.type == "content_block_delta" or self.type.endswith(".delta"))
