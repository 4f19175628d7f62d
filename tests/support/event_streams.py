"""Streams of every API's real shapes, as engines frame them, for property tests; and how to read them the slow way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st

Json = dict[str, Any]


# What models write that looks like what is searched for.
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            " word",
            '"',
            "\\",
            "\n\ndata: x\r\n",
            "é\u2028\u0085😀",
            '"choices":[{"index":0,"delta":{"content":"',
            'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n',
            '"usage":{"prompt_tokens":99,"completion_tokens":98}',
            '"type":"content_block_delta"',
            "}]}",
        ]
    ),
    st.text(max_size=5),
)
COUNTS = st.integers(-1, 10**9)
LOGPROBS = {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": []}]}


def usage_of(draw: st.DrawFn, names: tuple[str, str]) -> Json | None:
    return draw(
        st.one_of(
            st.none(),
            st.fixed_dictionaries({names[0]: COUNTS, names[1]: COUNTS}).map(
                lambda usage: {**usage, "prompt_tokens_details": {"cached_tokens": 3, "usage": {"prompt_tokens": 7}}}
            ),
        )
    )


DELTAS: list[Callable[[str], Json]] = [
    lambda text: {"content": text},
    lambda text: {"content": text},
    lambda text: {"role": "assistant", "content": text},
    lambda text: {"role": None, "content": text, "reasoning_content": None, "tool_calls": None},
    lambda text: {"role": None, "content": None, "reasoning_content": text, "tool_calls": None},
    lambda text: {"reasoning": text},
    lambda text: {"reasoning_content": text},
    lambda text: {"refusal": text},
    lambda text: {"tool_calls": [{"index": 0, "function": {"arguments": text}}]},
    lambda _: {"tool_calls": []},
    lambda _: {"content": None, "tool_calls": [{"index": 0, "id": "c", "type": "function"}]},
    lambda _: {},
]
CHOICES: list[Callable[[Json], Json]] = [
    lambda delta: {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None},
    lambda delta: {"index": 0, "delta": delta, "logprobs": LOGPROBS, "finish_reason": "stop"},
    lambda delta: {"finish_reason": None, "index": 0, "delta": delta},
    lambda delta: {"delta": delta, "index": 1},
]


@st.composite
def chat(draw: st.DrawFn, delta: Callable[[str], Json], choice: Callable[[Json], Json], usages: int) -> Json:
    """OpenAI, vLLM, SGLang (nulls before the content), llama.cpp (the choice's own order), Azure (no choices)."""
    if not draw(st.integers(0, 4)):
        delta = draw(st.sampled_from(DELTAS))
    if not draw(st.integers(0, 9)):
        choice = draw(st.sampled_from(CHOICES))
    one = choice(delta(draw(TEXTS)))
    event: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    event["choices"] = draw(st.sampled_from([[one]] * 8 + [[], [one, one]]))
    if draw(st.integers(0, 9)) < usages:
        usage = usage_of(draw, ("prompt_tokens", "completion_tokens"))
        event = {**event, "usage": usage} if draw(st.booleans()) else {"usage": usage, **event}
        if draw(st.booleans()):
            event["service_tier"] = {"usage": None} if draw(st.booleans()) else "default"
    return event


@st.composite
def completions(draw: st.DrawFn) -> Json:
    text = draw(TEXTS)
    choice = draw(
        st.sampled_from(
            [
                {"index": 0, "text": text, "logprobs": None, "finish_reason": None},
                {"text": text, "index": 0, "logprobs": {"text_offset": [0], "tokens": [text]}},
            ]
        )
    )
    event: Json = {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}
    if draw(st.booleans()):
        event["usage"] = usage_of(draw, ("prompt_tokens", "completion_tokens"))
    return event


@st.composite
def responses(draw: st.DrawFn) -> Json:
    text = draw(TEXTS)
    body = {"id": "r", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}
    return draw(
        st.sampled_from(
            [
                {"type": "response.created", "response": {**body, "usage": None}},
                {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
                {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": text},
                {"item_id": "m", "delta": text, "type": "response.output_text.delta"},
                {"type": "response.reasoning_summary_text.delta", "delta": text},
                {"type": "response.function_call_arguments.delta", "delta": text},
                {"type": "response.output_text.done", "text": text},
                {
                    "type": "response.completed",
                    "response": {**body, "usage": usage_of(draw, ("input_tokens", "output_tokens"))},
                },
            ]
        )
    )


@st.composite
def messages(draw: st.DrawFn) -> Json:
    text = draw(TEXTS)
    usage = usage_of(draw, ("input_tokens", "output_tokens"))
    return draw(
        st.sampled_from(
            [
                {"type": "message_start", "message": {"id": "m", "content": [], "usage": usage}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "ping"},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": text},
                },
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
                {"type": "message_stop"},
                {"type": "error", "error": {"type": "overloaded_error", "message": text}},
            ]
        )
    )


class Style(NamedTuple):
    """How an engine writes its events."""

    end: bytes
    separators: tuple[str, str]
    field: bytes
    named: bool


STYLES = st.builds(
    Style,
    st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"]),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from([b"data: ", b"data: ", b"data:"]),
    st.booleans(),
)
ODD = [
    b": keep-alive",
    b"data: [DONE]",
    b"data: {broken",
    b"data: [1]",
    b"data:",
    b"id: 7",
    b"",
    b"retry: 1",
    b"event: x",
]


@st.composite
def framed(draw: st.DrawFn, events: st.SearchStrategy[Json], style: Style) -> bytes:
    """One event as engines write them: line ends, separators, names, comments, several data lines."""
    end, separators, field, named = style
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.sampled_from(ODD)) + end + end
    if kind == 1:
        end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    event = draw(events)
    text = json.dumps(event, ensure_ascii=draw(st.booleans()), separators=separators).encode()
    if kind == 2 and b", " in text:
        at = text.index(b", ") + 2
        return field + text[:at] + end + field + text[at:] + end + end
    if kind == 3:
        return b": " + field + text + end + end
    if kind == 4:
        return field + text + end + b"id: 1" + end + end
    front = b"event: " + str(event.get("type", "x")).encode() + end if named else b""
    return front + field + text + end + end


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Chunks of a stream, which is mostly of one kind, as streams are."""
    made = chat(draw(st.sampled_from(DELTAS[:9])), draw(st.sampled_from(CHOICES)), draw(st.sampled_from([0, 1, 9])))
    events = draw(st.sampled_from([made, made, completions(), responses(), messages(), responses() | messages()]))
    style = draw(STYLES)
    parts = [framed(events, style)] * draw(st.integers(0, 12))
    chunks = [draw(part) for part in parts]
    whole = b"".join(chunks)
    whole = whole[: len(whole) - draw(st.sampled_from([0, 0, 0, 1, 2, 9]))]
    if draw(st.integers(0, 2)):
        places = draw(st.lists(st.integers(0, len(whole)), max_size=8))
    else:
        places = list(accumulate(map(len, chunks)))
    edges = [0, *sorted(place for place in places if place < len(whole)), len(whole)]
    return [whole[start:stop] for start, stop in pairwise(edges)]


class Decoder:
    """Every event by WHATWG's rules and a JSON decoder, the slow way."""

    def __init__(self, stream: bytes, *, ended: bool) -> None:
        self.content = 0
        self.usage: list[int | None] = [None, None]
        pieces = re.split(rb"\r\n|\n|\r", stream)
        lines, rest = pieces[:-1], pieces[-1]
        if ended:
            lines += [rest, b""]
        data: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                self._event(b"\n".join(data))
                data = []

    def _event(self, data: bytes) -> None:
        try:
            event = json.loads(data.decode())
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        self.content += self._says_something(event)
        for holder in (event, event.get("response") or {}, event.get("message") or {}):
            usage = holder.get("usage") or {}
            for place, names in enumerate((("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))):
                for name in names:
                    if 0 <= usage.get(name, -1) <= 10**8:
                        self.usage[place] = usage[name]

    @staticmethod
    def _says_something(event: Json) -> bool:
        if event.get("choices"):
            return any(
                choice.get("text") or any(value for name, value in choice.get("delta", {}).items() if name != "role")
                for choice in event["choices"]
            )
        kind = event.get("type", "")
        return kind == "content_block_delta" or kind.endswith(".delta")
