"""What an inference server answers real clients: both APIs, whole and as a stream, tool calls and embeddings."""

from __future__ import annotations

import base64
import json
import struct

from support.fake_engine import Exchange

TOOL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Zürich"}'}}
VECTOR = (0.5, -1.25, 3.0)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _completion(message: dict[str, object]) -> bytes:
    choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop", "message": message}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return _json(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    )


def _piece(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _json({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def _openai_pieces(tools: bool) -> list[bytes]:
    if not tools:
        return [_piece({"role": "assistant", "content": "Grüß"}), _piece({"content": " dich"}), _piece({}, "stop")]
    begin = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": text}} for text in ('{"city":', '"Zürich"}')]
    return [*(_piece({"tool_calls": [call]}) for call in (begin, *more)), _piece({}, "tool_calls")]


def _message(content: list[dict[str, object]], stop: str) -> dict[str, object]:
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": usage}  # fmt: skip


def _anthropic_events() -> list[tuple[str, dict[str, object]]]:
    text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in ("Grüß", " dich")
    ]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    events = [
        {"type": "message_start", "message": _message([], "")},
        text,
        {"type": "ping"},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        end,
        {"type": "message_stop"},
    ]
    return [(str(event["type"]), event) for event in events]


async def _messages(exchange: Exchange, stream: bool) -> None:
    if stream:
        await exchange.start_sse()
        for name, event in _anthropic_events():
            await exchange.chunk(b"event: %b\ndata: %b\n\n" % (name.encode(), _json(event)))
        await exchange.end_chunks()
    elif b'"tools"' in exchange.request.body:
        use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Zürich"}}
        await exchange.answer(_json(_message([use], "tool_use")))
    else:
        await exchange.answer(_json(_message([{"type": "text", "text": "Grüß dich"}], "end_turn")))


async def _chat(exchange: Exchange, stream: bool) -> None:
    tools = b'"tools"' in exchange.request.body
    if stream:
        await exchange.start_sse()
        for piece in _openai_pieces(tools):
            await exchange.chunk(b"data: " + piece + b"\n\n")
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_chunks()
    elif tools:
        await exchange.answer(_completion({"role": "assistant", "content": None, "tool_calls": [TOOL]}))
    else:
        await exchange.answer(_completion({"role": "assistant", "content": "Grüß dich"}))


async def _embeddings(exchange: Exchange) -> None:
    vector: object = list(VECTOR)
    if b"base64" in exchange.request.body:
        vector = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()
    data = {"object": "embedding", "index": 0, "embedding": vector}
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    await exchange.answer(_json({"object": "list", "model": "m", "data": [data], "usage": usage}))


async def _responses(exchange: Exchange) -> None:
    text = {"type": "output_text", "text": "Grüß dich", "annotations": []}
    message = {"type": "message", "id": "o1", "role": "assistant", "status": "completed", "content": [text]}
    response = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "output": [message],
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    await exchange.answer(_json(response))


async def model_server(exchange: Exchange) -> None:
    """A script for FakeEngine."""
    path = exchange.request.target
    stream = b'"stream":true' in exchange.request.body.replace(b'": ', b'":')
    if path.startswith("/v1/embeddings"):
        await _embeddings(exchange)
    elif path.startswith("/v1/messages"):
        await _messages(exchange, stream)
    elif path.startswith("/v1/responses"):
        await _responses(exchange)
    else:
        await _chat(exchange, stream)
