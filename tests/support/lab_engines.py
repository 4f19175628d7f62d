"""Simulated engines in fleets of one, what is asked of them, and their metrics page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.engine.fleet import FleetSpec, parse_spec

MODEL = "llama-3.1-70b"
WITHIN = 30.0  # seconds; conditions come true in a few milliseconds, unless the machine is busy


def spec(**fields: Any) -> FleetSpec:
    """One fast engine, and what a test adds."""
    engine = {"name": "a", "hardware": "B200x4", "model": MODEL, **fields.pop("engine", {})}
    return parse_spec(msgspec.json.encode({"speed": 8.0, "engines": [engine], **fields}), "test")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110 - the condition is a state of the engine, which tells nobody
            await asyncio.sleep(0.005)


def body(**fields: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 8, **fields}


async def page(http: aiohttp.ClientSession, url: str) -> dict[tuple[str, str], float]:
    """The metrics page: value by sample name and what tells it from its siblings (le or finished_reason)."""
    async with http.get(f"{url}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = text_string_to_metric_families(await answer.text())
    samples = {}
    for sample in (sample for family in families for sample in family.samples):
        assert sample.labels["engine"] == "0"
        assert sample.labels.get("model_name", MODEL) == MODEL
        samples[sample.name, sample.labels.get("le", sample.labels.get("finished_reason", ""))] = sample.value
    return samples
