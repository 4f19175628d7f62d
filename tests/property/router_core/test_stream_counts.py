"""Counting a stream's events by their sign gives what decoding each of them would, in every API's real shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_router.telemetry.signs import sign_of
from headrace_router.telemetry.sse import StreamObserver
from headrace_router.telemetry.unary import UnaryObserver
from headrace_router.telemetry.usage_form import UsageForm

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


CHAT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
CRLF = CHAT.replace(b"\n", b"\r\n")
STATED = CHAT.replace(b"]}\n", b'],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n')
NONE = CHAT.replace(b"]}\n", b'],"usage":null}\n')
TWICE = CHAT.replace(b"]}\n", b'],"usage":null,"usage":{"prompt_tokens":3,"completion_tokens":2}}\n')


@settings(max_examples=250)
@given(streams())
@example([CHAT * 3])
@example([CHAT, CHAT.replace(b'"a"', b'""'), CHAT])
@example([CHAT + b'data: {"choices":[{"index":0,"delta":{"content":"'])
@example([CHAT, STATED, STATED])
@example([CHAT] * 3 + [STATED, CHAT])
@example([CHAT] * 3 + [CHAT.replace(b'"a"', b'"' + b"a" * 65 + b'"'), CHAT])
@example([NONE] * 4 + [NONE.replace(b'"a"', b'"\\"usage\\""'), NONE, STATED, NONE])
@example([CHAT, CHAT, STATED])
@example([CHAT, CHAT, TWICE])
@example([CHAT, b"x", CHAT])
@example([CHAT, CHAT, b"x", CHAT])
@example([CHAT, CHAT, CHAT[:-2] + b"\rdata: y\n\n"])
@example([CHAT, CHAT, CHAT[:-1] + b"d", b"ata: y\n\n"])
@example([CHAT, CHAT, CHAT[:-1] + b"data: y\n\n" + CHAT])
@example([CRLF, CRLF, CRLF[:-4] + b"\rdata: y\r\n\r\n"])
@example([CHAT, b'data: {"a":1,\n', CHAT])
@example([CHAT, CHAT[:-1] + b"data: x\n\n"])
@example([CHAT, b"data: x\r" + CHAT])
@example([CHAT[:-1], b"\n", CHAT[:-2] + b"\r", b"\n\r", CHAT])
def test_counts_by_sign_are_those_of_a_full_decoder(chunks: list[bytes]) -> None:
    """STR-05 (https://github.com/envoyproxy/ai-gateway/issues/2162): chunk edges, comments and line ends mean nothing;
    the first token is seen in the very chunk that completes it."""
    plain, framed_too = StreamObserver(), StreamObserver()
    stream = b""
    for chunk in chunks:
        stream += chunk
        some = Decoder(stream, ended=False).content > 0
        assert plain.feed(chunk) == some
        assert fed_framed(framed_too, chunk) == some
    right = Decoder(stream, ended=True)
    for observer in (plain, framed_too):
        observer.end()
        assert observer.content_events == right.content
        assert [observer.usage.input_tokens, observer.usage.output_tokens] == right.usage


def fed_framed(observer: StreamObserver, chunk: bytes) -> bool:
    """As a relay does it."""
    raw = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    return observer.usual(raw, raw.index(b"\n") + 1) or observer.feed(chunk)


@given(
    st.sampled_from([CHAT, CRLF, NONE, STATED]),
    st.lists(
        st.one_of(
            st.lists(
                st.sampled_from(
                    [b'"', b"a", b"\\", b"\n", b"\r", b"usage", b'"usage"', b":null", b"}]}\n\n", b"data: ", b"a" * 65]
                ),
                max_size=6,
            ).map(b"".join),
            st.binary(max_size=4),
        ),
        max_size=6,
    ),
)
@example(CHAT, [b"", b'"b', b'\\"usage"', b"usage", b'\\"a', b"\n\ndata: x\n\n", b"a"])
def test_whatever_stands_in_a_whole_chunk_counts_as_it_would_without_its_framing(
    event: bytes, contents: list[bytes]
) -> None:
    plain, framed_too = StreamObserver(), StreamObserver()
    for content in [b"a", b"b", b"c", *contents, b"d"]:
        chunk = event.replace(b'"a"', b'"' + content + b'"')
        assert plain.feed(chunk) == fed_framed(framed_too, chunk)
        assert plain.content_events == framed_too.content_events
        assert plain.usage.input_tokens == framed_too.usage.input_tokens


@given(
    st.one_of(chat(DELTAS[0], CHOICES[0], 9), completions(), responses(), messages()),
    st.integers(1, 400),
    st.booleans(),
)
def test_usage_of_a_whole_answer_is_that_of_a_full_decoder(answer: Json, piece: int, spaced: bool) -> None:
    text = json.dumps(answer, separators=(", ", ": ") if spaced else (",", ":"))
    observer = UnaryObserver()
    for start in range(0, len(text), piece):
        observer.feed(text[start : start + piece].encode("utf-8", "surrogatepass"))
    right = Decoder(b"data: " + json.dumps({"usage": answer.get("usage")}).encode() + b"\n\n", ended=True)
    form = UsageForm()
    for found in (observer.usage(), observer.usage(form), observer.usage(form)):
        assert [found.input_tokens, found.output_tokens] == right.usage


# Ends of answers as engines write them, with room for numbers.
ENDS = [
    b'"usage":{"prompt_tokens":%b,"completion_tokens":%b,"total_tokens":%b}}',
    b'"usage":{"prompt_tokens":%b,"total_tokens":%b,"completion_tokens":%b,"prompt_tokens_details":null},"x":[1,{"a":2}]}\n',
    b'"usage":{"input_tokens":%b,"output_tokens":%b,"cache":{"read":%b}}}',
    b'"usage":{"prompt_tokens":%b,"details":{"prompt_tokens":%b},"completion_tokens":%b}}',
    b'"usage":{"prompt_tokens":%b,"input_tokens":%b,"completion_tokens":%b}}',
    b'"usage":{"completion_tokens":%b,"note":"\\":%b,","total_tokens":%b}}',
    b'"usage":{"completion_tokens":%b,"note":":%b,","prompt_tokens":%b}}',
    b'"usage":null,"metadata":{"a":%b,"e2e_latency":0.%b,"b":%b}}',
    b'"inner":{"usage":{"prompt_tokens":%b,"completion_tokens":%b,"total_tokens":%b}}}',
]
NUMBERS = st.one_of(
    st.integers(0, 10**9).map(lambda number: b"%d" % number),
    st.sampled_from(
        [b"0", b"7", b"00", b"07", b"-1", b"1.5", b"1e3", b"", b"null", b"99999999", b"100000000", b"9" * 30]
    ),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(ENDS[:3] * 3 + ENDS), NUMBERS, NUMBERS, NUMBERS, st.sampled_from([b"", b" ", b"}"])),
        max_size=8,
    )
)
@example([(ENDS[0], b"1", b"2", b"3", b""), (ENDS[0], b"512", b"128", b"640", b""), (ENDS[0], b"07", b"1", b"1", b"")])
def test_usage_in_the_form_of_the_answer_before_is_what_a_decoder_reads(answers: list[tuple[bytes, ...]]) -> None:
    form = UsageForm()
    for end, first, second, third, behind in answers:
        observer = UnaryObserver()
        observer.feed(b'{"id":"a","choices":[],' + end % (first, second, third) + behind)
        plain, found = observer.usage(), observer.usage(form)
        assert (found.input_tokens, found.output_tokens) == (plain.input_tokens, plain.output_tokens)


@pytest.mark.parametrize(
    ("end", "met"), [*zip(ENDS, [True, True, True, False, False, False, True, False, False], strict=True)]
)
def test_the_usual_ends_have_a_form(end: bytes, met: bool) -> None:
    """Else each is decoded: right, and dearer."""
    form = UsageForm()
    for numbers in ((b"1", b"2", b"3"), (b"400", b"50", b"60")):
        observer = UnaryObserver()
        observer.feed(b'{"id":"a","choices":[],' + end % numbers)
        observer.usage(form)
        taken = form.meets(b'{"id":"b",' + end % (b"12", b"0", b"9999999"))
        assert taken is met
    assert not form.meets(b'{"id":"b",' + end % (b"012", b"01", b"05"))
    assert not form.meets(b"")


def test_the_usual_events_have_a_sign() -> None:
    """Else every event of such a stream is decoded: right, and three times as dear."""
    delta = {"content": "a"}
    for event in (
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]},
        {"choices": [{"finish_reason": None, "index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {"role": None, "content": None, "reasoning_content": "a"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]},
        {"choices": [{"index": 0, "text": "a"}]},
        {"type": "content_block_delta", "delta": {"type": "text_delta"}},
        {"delta": "a", "type": "response.output_text.delta"},
    ):
        for text in (json.dumps(event), json.dumps(event, separators=(",", ":"))):
            assert sign_of(text.encode()), text
    assert sign_of(b'{"choices":[{"index":0,"delta":{"content":""}}]}') is None


def test_the_usual_chunk_is_counted_in_its_framing() -> None:
    """Else each is searched three times: right, and dearer."""
    for event in (CHAT, CRLF, NONE):
        observer = StreamObserver()
        for _ in range(3):
            observer.feed(event)
        for content in (b"b", b" word", b"\\n", b"\xc3\xa9", b'\\"' if event is not NONE else b"x"):
            chunk = event.replace(b'"a"', b'"' + content + b'"')
            raw = b"%x\r\n%b\r\n" % (len(chunk), chunk)
            assert observer.usual(raw, raw.index(b"\n") + 1), content
        assert observer.content_events == 8
