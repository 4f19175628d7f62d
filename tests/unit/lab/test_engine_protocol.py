"""The engine's side of the OpenAI API: what it understands, what it refuses and in which words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from headrace_lab.engine.protocol import ApiError, Ask, Writer, parse


def chat(**fields: Any) -> bytes:
    """A chat request's body."""
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "x" * 40}], **fields})


def ask(body: bytes, *, is_chat: bool = True) -> Ask:
    """Parse with blocks of 16 tokens."""
    return parse(body, chat=is_chat, prefix_block_tokens=16)


def test_contents_are_joined_whatever_their_form() -> None:
    parts = [{"type": "text", "text": "b" * 30}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [
        {"role": "system", "content": "a" * 34},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None},
    ]
    split = ask(msgspec.json.encode({"model": "m", "messages": messages}))
    whole = ask(chat(messages=[{"role": "user", "content": "a" * 34 + "b" * 30}]))
    assert split.prompt_tokens == whole.prompt_tokens == 16
    assert split.prefix == whole.prefix
    assert len(whole.prefix) == 1


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9}, 9),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
    ],
)
def test_the_answers_length_is_what_was_asked_for(fields: dict[str, int], tokens: int | None) -> None:
    assert ask(chat(**fields)).output_tokens == tokens


def test_streaming_and_usage() -> None:
    assert not ask(chat()).stream
    asked = ask(chat(stream=True, stream_options={"include_usage": True}, ignore_eos=True, unheard_of=[1]))
    assert (asked.stream, asked.include_usage) == (True, True)
    assert not ask(chat(stream=True, stream_options=None)).include_usage


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("x" * 9, 3), (["x" * 9], 3), ([1, 2, 3], 3), ([4294967295], 1)],
    ids=["text", "one text", "token ids", "largest id"],
)
def test_a_completion_takes_text_or_ids(prompt: Any, tokens: int) -> None:
    asked = ask(msgspec.json.encode({"model": "m", "prompt": prompt}), is_chat=False)
    assert asked.prompt_tokens == tokens


@pytest.mark.parametrize(
    ("body", "is_chat", "fault"),
    [
        (b"", True, "not a valid request"),
        (b"{", True, "not a valid request"),
        (b"[]", True, "object"),
        (b"\xff\xfe", True, "not a valid request"),
        (b'{"model": "m"}', True, "messages"),
        (b'{"model": "m", "messages": []}', True, "messages"),
        (b'{"model": "m", "messages": [{"content": "x"}]}', True, "role"),
        (b'{"a":' + b"[" * 100_000, True, "not a valid request"),
        (chat(max_tokens=0), True, "max_tokens"),
        (chat(max_tokens=-1), True, "max_tokens"),
        (chat(max_tokens=1e99), True, "max_tokens"),
        (chat(max_tokens="7"), True, "max_tokens"),
        (chat(max_tokens=10**9), True, "max_tokens"),
        (chat(n=2), True, "n is 2"),
        (chat(stream="yes"), True, "stream"),
        (chat(stream_options={"include_usage": True}), True, "stream_options"),
        (b'{"model": "m"}', False, "prompt"),
        (b'{"model": "m", "prompt": ""}', False, "prompt is empty"),
        (b'{"model": "m", "prompt": []}', False, "prompt is empty"),
        (b'{"model": "m", "prompt": ["a", "b"]}', False, "one text"),
        (b'{"model": "m", "prompt": [1, "b"]}', False, "one text"),
        (b'{"model": "m", "prompt": [-1]}', False, "token ids"),
        (b'{"model": "m", "prompt": [4294967296]}', False, "token ids"),
        (b'{"model": "m", "prompt": [1.5]}', False, "prompt"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, is_chat: bool, fault: str) -> None:
    with pytest.raises(ApiError, match=fault) as caught:
        ask(body, is_chat=is_chat)
    assert caught.value.status == 400
    error = json.loads(caught.value.body)["error"]
    assert (error["type"], error["code"]) == ("BadRequestError", 400)


def test_an_answer_that_does_not_stream_reads_as_openai_types() -> None:
    writer = Writer(ask(chat(max_tokens=3)), "chatcmpl-1", "m", 1)
    answer = ChatCompletion.model_validate_json(writer.whole("length", 3), strict=True)
    assert answer.choices[0].message.content == " tok tok tok"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 3, 13)
    old = Writer(ask(b'{"prompt": "xxxx"}', is_chat=False), "cmpl-1", "m", 1)
    completion = Completion.model_validate_json(old.whole("stop", 2), strict=True)
    assert (completion.choices[0].text, completion.choices[0].finish_reason) == (" tok tok", "stop")


def test_a_stream_reads_as_openai_types() -> None:
    writer = Writer(ask(chat(stream=True, stream_options={"include_usage": True})), "chatcmpl-1", "m", 1)
    stream = writer.opening() + writer.tokens(1) + writer.tokens(4) + writer.closing(2, "stop", 7)
    events = stream.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [ChatCompletionChunk.model_validate_json(e.removeprefix("data: "), strict=True) for e in events[:-2]]
    assert [c.choices[0].delta.content for c in chunks[:-1]] == ["", " tok", " tok" * 4, " tok" * 2]
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None, None, None, "stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 17


def test_a_completions_stream_has_no_role_and_no_usage_unless_asked() -> None:
    writer = Writer(ask(b'{"prompt": "xxxx", "stream": true}', is_chat=False), "cmpl-1", "m", 1)
    assert writer.opening() == b""
    first, last, done, _ = (writer.tokens(1) + writer.closing(1, "length", 2)).decode().split("\n\n")
    for event, reason in ((first, None), (last, "length")):
        chunk = json.loads(event.removeprefix("data: "))
        assert chunk["object"] == "text_completion"
        assert chunk["choices"] == [{"index": 0, "text": " tok", "logprobs": None, "finish_reason": reason}]
    assert done == "data: [DONE]"
