"""Counting a stream's events by their sign gives what decoding each of them would, in every API's real shapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_router.telemetry.signs import sign_of
from headrace_router.telemetry.sse import StreamObserver
from headrace_router.telemetry.unary import UnaryObserver
from headrace_router.telemetry.usage_form import UsageForm
from support.event_streams import CHOICES, DELTAS, Decoder, Json, chat, completions, messages, responses, streams

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
