"""What a simulated engine may run on: step costs fitted from measured series, and what to declare about them.

Off the request path: read once at start. The numbers come from ``../data`` (its README names source, commit, licence
and errors); ``fit`` computes them anew from the rows beside them. Nothing here is invented for the demo.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import msgspec

from headrace_lab.engine.contract import EngineConfig, StepCost


class ReferenceMix(msgspec.Struct, frozen=True, rename="camel"):
    """The request that a profile was measured with; tokens."""

    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        """As profiles are keyed: ``1024/128``."""
        return f"{self.input_tokens}/{self.output_tokens}"


REFERENCE: Final = ReferenceMix(input_tokens=1024, output_tokens=128)  # chat turns of hundreds of words
LONG_PROMPTS: Final = ReferenceMix(input_tokens=2048, output_tokens=64)  # conversations that carry their history


class Fit(msgspec.Struct, frozen=True, rename="camel"):
    """How well the step cost explains the measured token times; errors are shares of the measured value."""

    rows: int
    r2: float
    median_error: float
    max_error: float


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """One fitted kind of engine. Milliseconds a step, as in the measured series."""

    accelerator: str
    count: int
    base_ms: float
    per_sequence_ms: float
    per_prompt_token_ms: float
    per_context_token_ms: float
    max_num_seqs: int
    kv_cache_tokens: int
    fit: Fit

    def cost(self, speed: float = 1.0) -> StepCost:
        """Seconds of a step; ``speed`` 2.0 halves them. Raises ValueError unless speed is finite and above 0."""
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed {speed!r}: right would be a factor above 0, such as 1.0")
        milliseconds = StepCost(self.base_ms, self.per_sequence_ms, self.per_prompt_token_ms, self.per_context_token_ms)
        return milliseconds.scaled(1e-3 / speed)

    def config(self, speed: float = 1.0, prefix_block_tokens: int = 512) -> EngineConfig:
        """The engine's limits and costs at a time scale."""
        return EngineConfig(
            self.cost(speed), self.kv_cache_tokens, self.max_num_seqs, prefix_block_tokens=prefix_block_tokens
        )

    def rates(self, mix: ReferenceMix, speed: float = 1.0) -> tuple[float, float]:
        """Prefill and decode tokens per second, each alone, with a full batch of ``mix``.

        From the design's work per request, in c + out (b + a/B): prefill 1/c, decode 1/(b + a/B), where b holds what a
        running request costs at the mix's mean context.
        """
        cost = self.cost(speed)
        context = mix.input_tokens + mix.output_tokens / 2
        decode = cost.per_sequence + cost.per_context_token * context + cost.base / self.max_num_seqs
        return 1.0 / cost.per_prompt_token, 1.0 / decode

    def work(self, mix: ReferenceMix, speed: float = 1.0) -> float:
        """Seconds of one replica per request of ``mix``; its inverse is the capacity in requests/s."""
        prefill, decode = self.rates(mix, speed)
        return mix.input_tokens / prefill + mix.output_tokens / decode


class ProfilePoint(msgspec.Struct, frozen=True, rename="camel"):
    """Means at one utilisation, measured by running the step loop."""

    utilization_percent: int
    ttft_ms: float
    tbot_ms: float


def _read(name: str) -> bytes:
    return resources.files("headrace_lab").joinpath("data", name).read_bytes()


HARDWARE: Final[dict[str, Hardware]] = msgspec.json.decode(_read("hardware.json"), type=dict[str, Hardware])


def profile(name: str, mix: ReferenceMix = REFERENCE) -> list[ProfilePoint]:
    """The derived latency curve of ``HARDWARE[name]`` at ``mix`` and speed 1, by rising utilisation.

    Raises:
        KeyError: no such hardware, or no curve was derived for the mix (``python -m headrace_lab.engine.virtual``).
    """
    curves = msgspec.json.decode(_read("profiles.json"), type=dict[str, dict[str, list[ProfilePoint]]])
    return curves[str(mix)][name]


def declared(name: str, *, speed: float = 1.0, mix: ReferenceMix = REFERENCE) -> dict[str, Any]:
    """The ``capacity``, ``profile`` and ``hardware`` blocks of an InferenceEngine's spec for ``HARDWARE[name]``.

    They say what the step loop really does at ``mix``; at another ``speed`` all times and rates scale.

    Raises:
        KeyError: no such hardware, or no curve for the mix.
        ValueError: the speed is not a factor above 0.
    """
    hardware = HARDWARE[name]
    prefill, decode = hardware.rates(mix, speed)
    points = profile(name, mix)
    return {
        "hardware": {"accelerator": hardware.accelerator, "count": hardware.count},
        "capacity": {
            "perReplica": {
                "prefillTokensPerSecond": round(prefill),
                "decodeTokensPerSecond": round(decode),
                "maxConcurrency": hardware.max_num_seqs,
                "kvCacheTokens": hardware.kv_cache_tokens,
            }
        },
        "profile": {
            "reference": {"inputTokens": mix.input_tokens, "outputTokens": mix.output_tokens},
            "ttft": [_point(point.utilization_percent, point.ttft_ms / speed) for point in points],
            "tbot": [_point(point.utilization_percent, point.tbot_ms / speed) for point in points],
        },
    }


def _point(utilization_percent: int, milliseconds: float) -> dict[str, Any]:
    return {"utilizationPercent": utilization_percent, "latency": f"{milliseconds:.3f}ms"}
