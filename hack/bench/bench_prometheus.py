#!/usr/bin/env python3
"""How long the operator takes to read N engines out of a real Prometheus: `bench_prometheus.py [ENGINES]`.

A real Prometheus scrapes pages with the series of N vLLM engines (honor_labels: many engines a page), every 15 s. Then
rounds of the operator's own source are timed beside the interval they have, each with what it cost.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.prometheus import PrometheusSource
from headrace_operator.loader.source import EngineTarget
from support.prometheus_process import PrometheusProcess

A_PAGE = 100
REASONS = ("stop", "length", "abort", "error", "repetition")
NAMES = names_of("vLLM")
PLAIN = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:time_to_first_token_seconds_sum",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
)


def address(number: int) -> str:
    return f"10.{number // 62500}.{number // 250 % 250}.{number % 250}:8000"


def page(first: int, count: int, now: float) -> str:
    lines = []
    for number in range(first, first + count):
        labels = (
            f'model_name="m",engine="0",namespace="inf",service="e{number}",pod="e{number}-7d9c8b7f5-abcde",job="vllm",'
            f'instance="{address(number)}",container="vllm",endpoint="http"'
        )
        lines += [f"{name}{{{labels}}} {now + number}" for name in PLAIN]
        lines += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {now + number}' for reason in REASONS
        ]
    return "\n".join(lines) + "\n"


def targets(count: int) -> list[EngineTarget]:
    return [
        EngineTarget(
            f"inf/e{number}",
            f"http://{address(number)}",
            NAMES,
            frozenset({"m"}),
            "bench",
            f"inf/e{number}-7d9c8b7f5-abcde",
        )
        for number in range(count)
    ]


async def served() -> tuple[web.AppRunner, int]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=page(int(request.match_info["first"]), A_PAGE, time.monotonic()))

    app = web.Application()
    app.router.add_get("/{first}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    runner, port = await served()
    with tempfile.TemporaryDirectory() as folder:
        prometheus = PrometheusProcess(Path(folder), interval="15s")
        prometheus.pages("bench", [(f"127.0.0.1:{port}", f"/{first}") for first in range(0, count, A_PAGE)])
        await prometheus.start()
        sys.stdout.write(f"{count} engines, {count * 16} series; waiting for two scrapes\n")
        await asyncio.sleep(45)
        source = PrometheusSource(MetricSource(name="bench", url=prometheus.url, timeout="30s"), follow=False)
        source.retarget(targets(count))
        for number in range(6):
            wall, cpu = time.monotonic(), time.process_time()
            samples = await source.read_once()
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            read = sum(sample.outcome == "Read" for sample in samples) - 1
            sys.stdout.write(
                f"round {number}: {wall:.2f} s, CPU {cpu:.2f} s, {read} pages, peak {peak:.0f} MiB"
                f" {samples[-1].problem}\n"
            )
            await asyncio.sleep(5)
        await source.close()
        await prometheus.kill()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
