"""Run inside a cluster's network: streams by the openai package until SIGTERM, then one line of JSON about them.

``python -m support.live_load URL CONCURRENCY``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import openai


async def main(url: str, concurrency: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    whole, failed = 0, []

    async def streams(number: int) -> None:
        nonlocal whole
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                stream = await client.chat.completions.create(
                    model="llama-3.1-70b",
                    messages=[{"role": "user", "content": f"{number} {turn}"}],
                    max_tokens=24,
                    stream=True,
                    extra_headers={"x-session-id": f"s{number}-{turn % 8}"},
                )
                finished = None
                async for chunk in stream:
                    finished = chunk.choices[0].finish_reason if chunk.choices else finished
                if finished is None:
                    raise AssertionError("ended without an end")  # noqa: TRY301
                whole += 1
            except Exception as error:  # noqa: BLE001
                failed.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1)

    await asyncio.gather(*(streams(number) for number in range(concurrency)))
    print(json.dumps({"whole": whole, "failed": failed[:20], "failures": len(failed)}))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
