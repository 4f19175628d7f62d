"""What a simulated engine measures of itself, and its ``/metrics`` page in vLLM's words.

On the engine-signal path: the operator's loader reads this page as it reads a real engine's. Names, labels and buckets
are those of vLLM 0.33. Recording costs a bisect and two additions a token; the page is rendered when it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from headrace_lab.engine.contract import Progress
from headrace_lab.engine.kvcache import BLOCK_TOKENS
from headrace_lab.engine.steploop import StepLoop

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
REASONS: Final = ("stop", "length", "abort", "error", "repetition")

_TTFT: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_GAP: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
_TOKENS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class Histogram:
    """Counts by upper bound, and the sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by ``le``, the last one all."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class EngineMetrics(Collector):
    """One replica's measurements; its counters start at 0 with the replica, as a restarted process' do."""

    def __init__(self, core: StepLoop, model: str) -> None:
        self._core = core
        self._model = model
        self.ttft = Histogram(_TTFT)
        self.gap = Histogram(_GAP)
        self.duration = Histogram(_REQUEST)
        self.queue = Histogram(_REQUEST)
        self.prompt = Histogram(_TOKENS)
        self.generated = Histogram(_TOKENS)
        self.ended = dict.fromkeys(REASONS, 0)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def record(self, progress: Progress) -> None:
        """Count one token."""
        if progress.generated == 1:
            self.ttft.observe(progress.gap)
            self.queue.observe(progress.queued)
        else:
            self.gap.observe(progress.gap)

    def finish(self, reason: str, duration: float, prompt_tokens: int, generated: int) -> None:
        """Count a request that ended on its own after ``duration`` seconds."""
        self.ended[reason] += 1
        self.duration.observe(duration)
        self.prompt.observe(prompt_tokens)
        self.generated.observe(generated)

    def page(self) -> bytes:
        """The page, in the Prometheus text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Every family on the page."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: the registry needs no check for double names with one collector."""
        return iter(())

    def _gauges(self) -> Iterator[Metric]:
        core = self._core
        for name, text, value in (
            ("num_requests_running", "Number of requests in model execution batches.", core.running),
            ("num_requests_waiting", "Number of requests waiting to be processed.", core.waiting),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", core.kv_usage),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=("engine", "model_name"))
            gauge.add_metric(("0", self._model), value)
            yield gauge
        config = core.config
        info = {
            "block_size": str(BLOCK_TOKENS),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": "0",
            "kv_cache_size_tokens": str(config.kv_cache_tokens),
            "num_gpu_blocks": str(config.kv_cache_tokens // BLOCK_TOKENS),
        }
        cache = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=tuple(info)
        )
        cache.add_metric(tuple(info.values()), 1.0)
        yield cache

    def _counters(self) -> Iterator[Metric]:
        stats = self._core.stats
        for name, text, value in (
            ("prompt_tokens", "Number of prefill tokens processed.", stats.prompt_tokens),
            ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", stats.prefix_hits),
            ("generation_tokens", "Number of generation tokens processed.", stats.generated_tokens),
            (
                "prefix_cache_queries",
                "Prefix cache queries, in terms of number of queried tokens.",
                stats.prefix_queries,
            ),
            ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", stats.prefix_hits),
            ("num_preemptions", "Cumulative number of preemption from the engine.", stats.preemptions),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=("engine", "model_name"))
            counter.add_metric(("0", self._model), value)
            yield counter
        ended = CounterMetricFamily(
            "vllm:request_success",
            "Count of successfully processed requests.",
            labels=("engine", "finished_reason", "model_name"),
        )
        for reason, count in self.ended.items():
            ended.add_metric(("0", reason, self._model), count)
        yield ended

    def _histograms(self) -> Iterator[Metric]:
        for name, text, histogram in (
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", self.ttft),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", self.gap),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", self.duration),
            ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", self.queue),
            ("request_prompt_tokens", "Number of prefill tokens processed.", self.prompt),
            ("request_generation_tokens", "Number of generation tokens processed.", self.generated),
        ):
            family = HistogramMetricFamily(f"vllm:{name}", text, labels=("engine", "model_name"))
            family.add_metric(("0", self._model), histogram.buckets(), histogram.total)
            yield family
