"""The engine's side of the OpenAI API: requests in, answers and events out, as vLLM words them.

On the request path of a simulated engine. Pure: bytes and values, no I/O. Every request is hostile until it is
decoded here; what is wrong becomes an ``ApiError`` that names the field. Fields that a simulation has no use for are
ignored as vLLM ignores them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from headrace_lab.engine.prompts import prefix_keys, token_count

MAX_TOKENS: Final = 1_000_000
WORD: Final = " tok"  # 4 bytes, so that an answer fed back as a prompt counts the same


class ApiError(Exception):
    """A refusal in OpenAI's form."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The client's fault."""
    return ApiError(400, "BadRequestError", message, param)


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


_Count = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]


class _Common(msgspec.Struct, kw_only=True):
    model: str | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: _Count | None = None
    n: int | None = 1


class _Chat(_Common, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _Count | None = None


class _Completion(_Common, kw_only=True):
    prompt: str | list[int | str]


class Ask(msgspec.Struct, frozen=True):
    """A request understood. ``output_tokens`` is None when the client set no limit."""

    chat: bool
    model: str | None
    stream: bool
    include_usage: bool
    prompt_tokens: int
    output_tokens: int | None
    prefix: tuple[bytes, ...]


_CHAT: Final = msgspec.json.Decoder(_Chat)
_COMPLETION: Final = msgspec.json.Decoder(_Completion)


def parse(body: bytes, *, chat: bool, prefix_block_tokens: int) -> Ask:
    """Read a request's body. Raises ApiError (400) naming the field that is wrong."""
    request: _Chat | _Completion
    try:
        request = _CHAT.decode(body) if chat else _COMPLETION.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not a valid request: {error}") from None
    if request.n not in {1, None}:
        raise bad_request(f"n is {request.n}; right would be 1", "n")
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options is set; right would be only with stream: true", "stream_options")
    limit = request.max_tokens
    if isinstance(request, _Chat):
        text = "".join(map(_content, request.messages)).encode("utf-8", "surrogatepass")
        limit = request.max_completion_tokens or limit
    else:
        text = _prompt(request.prompt)
    return Ask(
        chat=chat,
        model=request.model,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        prompt_tokens=max(1, token_count(text)),
        output_tokens=limit,
        prefix=prefix_keys(text, prefix_block_tokens),
    )


def _content(message: _Message) -> str:
    if isinstance(message.content, list):
        return "".join(part.text or "" for part in message.content)
    return message.content or ""


def _prompt(prompt: str | list[int | str]) -> bytes:
    """A prompt's text, or 4 bytes for each of its token ids."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if not prompt:
        raise bad_request("prompt is empty; right would be at least one token", "prompt")
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass")
    ids = [token for token in prompt if isinstance(token, int) and 0 <= token < 1 << 32]
    if len(ids) != len(prompt):
        raise bad_request("prompt is a list; right would be one text, or token ids from 0 to 4294967295", "prompt")
    return b"".join(token.to_bytes(4, "little") for token in ids)


class Writer:
    """Words the answers to one request; all its events share their head, which is built once."""

    def __init__(self, ask: Ask, name: str, model: str, created: int) -> None:
        """``name`` is the answer's id, ``created`` in seconds since 1970."""
        self._ask = ask
        kind = ("chat.completion" if ask.chat else "text_completion") + (".chunk" if ask.stream and ask.chat else "")
        self._top: dict[str, Any] = {"id": name, "object": kind, "created": created, "model": model}
        marked = self._event({"choices": [self._choice("\0", None)]})
        self._head, self._tail = marked.split(b"\\u0000")

    def opening(self) -> bytes:
        """What precedes the first token: in chat an event with the role, as vLLM sends it."""
        if not self._ask.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._event({"choices": [choice]})

    def tokens(self, count: int) -> bytes:
        """One event with ``count`` tokens."""
        return self._head + (WORD * count).encode() + self._tail

    def closing(self, count: int, reason: str, generated: int) -> bytes:
        """The last event, with its ``count`` tokens and the finish reason, the usage if asked for, and the end."""
        events = self._event({"choices": [self._choice(WORD * count, reason)]})
        if self._ask.include_usage:
            events += self._event({"choices": [], "usage": self._usage(generated)})
        return events + b"data: [DONE]\n\n"

    def whole(self, reason: str, generated: int) -> bytes:
        """The answer to a request that didn't stream."""
        choice = self._choice(WORD * generated, reason)
        if self._ask.chat:
            choice["message"] = {"role": "assistant", **choice.pop("delta")}
        return msgspec.json.encode({**self._top, "choices": [choice], "usage": self._usage(generated)})

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": {"content": text}} if self._ask.chat else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": reason}

    def _usage(self, generated: int) -> dict[str, int]:
        prompt = self._ask.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    def _event(self, fields: dict[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode({**self._top, **fields}) + b"\n\n"
