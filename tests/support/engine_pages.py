"""Metrics pages of thousands of replicas out of one process, each at a port of its own, in vLLM's words.

``python -m support.engine_pages HOST FIRST_PORT COUNT MODELS``: replica i is of model-(i // (COUNT / MODELS)). Counters
grow by the clock, at a steady small load that fits the engines' profiles: nothing in them is news. For the scale tests,
which ask what thousands of series cost, not what engines do (that is headrace_lab).
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

RATE: Final = 4.0  # requests/s of a replica
INPUT, OUTPUT = 900, 220
TTFT, TBOT = 0.11, 0.0095  # seconds
BEGAN: Final = time.time()
LINES: Final = """\
vllm:num_requests_running{{model_name="{model}"}} 9
vllm:num_requests_waiting{{model_name="{model}"}} 0
vllm:kv_cache_usage_perc{{model_name="{model}"}} 0.21
vllm:prompt_tokens_total{{model_name="{model}"}} {prompt:.0f}
vllm:generation_tokens_total{{model_name="{model}"}} {generated:.0f}
vllm:request_success_total{{model_name="{model}",finished_reason="stop"}} {done:.0f}
vllm:request_success_total{{model_name="{model}",finished_reason="error"}} 0
vllm:time_to_first_token_seconds_sum{{model_name="{model}"}} {ttft:.3f}
vllm:time_to_first_token_seconds_count{{model_name="{model}"}} {done:.0f}
vllm:inter_token_latency_seconds_sum{{model_name="{model}"}} {tbot:.3f}
vllm:inter_token_latency_seconds_count{{model_name="{model}"}} {generated:.0f}
"""


def page(model: str, seconds: float) -> bytes:
    """A replica's page after so many seconds."""
    done = 100 + RATE * seconds
    text = LINES.format(
        model=model,
        done=done,
        prompt=done * INPUT,
        generated=done * OUTPUT,
        ttft=done * TTFT,
        tbot=done * OUTPUT * TBOT,
    )
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Page(asyncio.Protocol):
    """One connection of a scraper; a GET's head ends with an empty line, and nothing else is asked."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while b"\r\n\r\n" in self._got:
            _, _, self._got = self._got.partition(b"\r\n\r\n")
            self._transport.write(page(self._model, time.time() - BEGAN))


async def serve(host: str, first: int, count: int, models: int) -> None:
    loop = asyncio.get_running_loop()
    each = count // models
    for number in range(count):
        name = f"model-{number // each}"
        await loop.create_server(lambda name=name: Page(name), host, first + number)  # type: ignore[misc]
    print("serving", flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], *map(int, sys.argv[2:5])))
