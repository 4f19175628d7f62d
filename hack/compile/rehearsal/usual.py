"""What clients and engines usually send: the heads of known clients, prompts of several sizes, answers at once and as
streams, framed in each way that engines frame them.

The same on every call. Names and figures are made up; the shapes are those of the OpenAI and Anthropic interfaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MODELS = ("model-a", "model-b")
SESSIONS = 16
EVENTS = 24
# Of prompts: a question, a conversation, a document, one that leaves in pieces.
SIZES = (120, 1_900, 1_900, 16_000, 90_000)
WORDS = "river gate weir "
TRICKY = 'it\'s "quoted" and \\slashed, a tab\t, a line\nand more, flüssig, 水車, 🌊; '
CLIENTS: Mapping[str, Sequence[str]] = {
    "openai": (
        "Host: models.example:8080",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        "Accept: application/json",
        "Content-Type: application/json",
        "User-Agent: OpenAI/Python 2.9.0",
        "X-Stainless-Lang: python",
        "X-Stainless-Package-Version: 2.9.0",
        "X-Stainless-OS: Linux",
        "X-Stainless-Arch: x64",
        "X-Stainless-Runtime: CPython",
        "X-Stainless-Runtime-Version: 3.13.1",
        "Authorization: Bearer sk-none",
        "X-Stainless-Async: false",
        "x-stainless-retry-count: 0",
        "x-stainless-read-timeout: 600",
    ),
    "anthropic": (
        "host: models.example",
        "accept: application/json",
        "content-type: application/json",
        "anthropic-version: 2023-06-01",
        "x-api-key: sk-none",
        "user-agent: Anthropic/Python 0.70.0",
        "x-forwarded-for: 10.1.2.3",
    ),
    "curl": ("Host: 10.0.0.1:8080", "User-Agent: curl/8.5.0", "Accept: */*", "Content-Type: application/json"),
    "gateway": (
        "Host: models.example",
        "Content-Type: application/json",
        "X-Forwarded-For: 10.1.2.3",
        "X-Forwarded-Proto: https",
        "X-Request-Id: 0123456789abcdef0123456789abcdef",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
}
ENGINE_HEAD = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"


@dataclass(frozen=True)
class Exchange:
    """A request and its answer, each as the reads in which it comes."""

    request: Sequence[bytes]
    answer: Sequence[bytes]


def exchanges(client: str, count: int) -> Iterator[Exchange]:
    """So many of one client's, the kinds mixed."""
    for turn in range(count):
        size = SIZES[turn % len(SIZES)]
        stream = turn % 3 != 0
        yield Exchange(_request(client, turn, size, stream), _stream(turn) if stream else _whole(turn))


def _request(client: str, turn: int, size: int, stream: bool) -> list[bytes]:
    session = f"session-{turn % SESSIONS:04}"
    path = "/v1/messages" if client == "anthropic" else "/v1/chat/completions"
    lines = [f"POST {path} HTTP/1.1", *CLIENTS[client]]
    if turn % 4 < 2:
        lines.append(f"x-session-id: {session}")
    body = json.dumps(_body(turn, size, stream, session), ensure_ascii=turn % 11 == 3).encode()
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
    if size < SIZES[-1]:
        return [head + body]
    return [head, *[body[at : at + 65_536] for at in range(0, len(body), 65_536)]]


def _body(turn: int, size: int, stream: bool, session: str) -> dict[str, object]:
    words = TRICKY if turn % 7 == 3 else WORDS
    text = words * (size // len(words) + 1)
    messages: list[dict[str, object]] = [{"role": "user", "content": text}]
    if turn % 3 == 1:
        messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": [_text(text)]}]
    body: dict[str, object] = {"model": MODELS[turn % 2], "messages": messages, "max_tokens": 128}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if turn % 4 in (1, 2):
        body |= {"user": session, "temperature": 0.7}
    if turn % 7 == 6:
        function = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
        body["tools"] = [{"type": "function", "function": function}]
    return body


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _usage(turn: int) -> dict[str, int]:
    return {"prompt_tokens": 512 + turn, "completion_tokens": 128, "total_tokens": 640 + turn}


def _whole(turn: int) -> list[bytes]:
    message = {"role": "assistant", "content": "a quick answer of words " * (4 + turn % 30)}
    said = {
        "id": f"chatcmpl-{turn:032x}",
        "object": "chat.completion",
        "created": 1767225600,
        "model": MODELS[turn % 2],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": _usage(turn),
    }
    body = json.dumps(said).encode()
    head = f"{ENGINE_HEAD}content-type: application/json\r\n"
    if turn % 4 == 1:
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return [f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunk]
    whole = f"{head}content-length: {len(body)}\r\n\r\n".encode()
    return [whole, body] if turn % 4 == 2 else [whole + body]


def _stream(turn: int) -> list[bytes]:
    """Head and first event in one read; then an event a read, now and then two, or one in two."""
    head = f"{ENGINE_HEAD}content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [_chunk(_event(turn, at)) for at in range(EVENTS)]
    reads = [head.encode() + chunks[0]]
    for at in range(1, EVENTS):
        if at % 8 == 5:
            reads[-1] += chunks[at]
        elif at % 8 == 7:
            reads += [chunks[at][:50], chunks[at][50:]]
        else:
            reads.append(chunks[at])
    last = {"id": f"chatcmpl-{turn:032x}", "model": MODELS[turn % 2], "choices": [], "usage": _usage(turn)}
    return [*reads, _chunk(f"data: {json.dumps(last)}\n\n"), _chunk("data: [DONE]\n\n") + b"0\r\n\r\n"]


def _event(turn: int, at: int) -> str:
    delta = {"role": "assistant", "content": ""} if at == 0 else {"content": " token"}
    said = {
        "id": f"chatcmpl-{turn:032x}",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": MODELS[turn % 2],
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
    }
    return f"data: {json.dumps(said, separators=(',', ':'))}\n\n"


def _chunk(text: str) -> bytes:
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)
