"""Which names each runtime gives to a signal, new ones first: releases rename, and fleets mix releases.

On the engine-signal path. Of several names for one signal the first that a page has is taken, never their sum (during
a rename both stand there with the same value). A name may carry one label: ``name{label="value"}``. Aborted requests
are the client's and never count as failed. Sources: the metrics classes of vLLM 0.6.6 to 0.33 and SGLang 0.4.6 to
0.5.23 (Apache-2.0), TGI, and trtllm-serve. Histograms give their sum and count; bucket bounds are never used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from headrace_operator.estimators.replica import Signal

Names = Mapping[str, tuple[str, ...]]

_VLLM: Final[Mapping[Signal, tuple[str, ...]]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "hit_rate": ("vllm:gpu_prefix_cache_hit_rate",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "generation_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "finished": ("vllm:request_success_total", "vllm:request_success"),
    "failed": ('vllm:request_success_total{finished_reason="error"}',),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "ttft_sum": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
    "tbot_sum": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "tbot_count": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
}

_SGLANG: Final[Mapping[Signal, tuple[str, ...]]] = {
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "kv_usage": ("sglang:token_usage",),
    "hit_rate": ("sglang:cache_hit_rate",),
    "prompt_tokens": ("sglang:prompt_tokens_total",),
    "generation_tokens": ("sglang:generation_tokens_total",),
    "finished": ("sglang:num_requests_total",),
    "prefix_hits": ("sglang:cached_tokens_total",),
    "prefix_queries": ("sglang:prompt_tokens_total",),
    "ttft_sum": ("sglang:time_to_first_token_seconds_sum",),
    "ttft_count": ("sglang:time_to_first_token_seconds_count",),
    "tbot_sum": ("sglang:inter_token_latency_seconds_sum",),
    "tbot_count": ("sglang:inter_token_latency_seconds_count",),
}

_TENSORRT: Final[Mapping[Signal, tuple[str, ...]]] = {
    "running": ("trtllm_num_requests_running",),
    "waiting": ("trtllm_num_requests_waiting",),
    "kv_usage": ("trtllm_kv_cache_utilization",),
    "hit_rate": ("trtllm_kv_cache_hit_rate",),
    "prompt_tokens": ("trtllm_prompt_tokens_total",),
    "generation_tokens": ("trtllm_generation_tokens_total",),
    "finished": ("trtllm_request_success_total",),
    "failed": ("trtllm_request_error_total",),
    "ttft_sum": ("trtllm_time_to_first_token_seconds_sum",),
    "ttft_count": ("trtllm_time_to_first_token_seconds_count",),
    "tbot_sum": ("trtllm_time_per_output_token_seconds_sum",),
    "tbot_count": ("trtllm_time_per_output_token_seconds_count",),
}

_TGI: Final[Mapping[Signal, tuple[str, ...]]] = {
    "running": ("tgi_batch_current_size",),
    "waiting": ("tgi_queue_size",),
    "prompt_tokens": ("tgi_request_input_length_sum",),
    "generation_tokens": ("tgi_request_generated_tokens_sum",),
    "finished": ("tgi_request_success",),
    "tbot_sum": ("tgi_request_mean_time_per_token_duration_sum",),
    "tbot_count": ("tgi_request_mean_time_per_token_duration_count",),
}

_BUILT_IN: Final[Mapping[str, Mapping[Signal, tuple[str, ...]]]] = {
    "vLLM": _VLLM,
    "SGLang": _SGLANG,
    "TensorRTLLM": _TENSORRT,
    "TGI": _TGI,
    "Custom": {},
}


def names_of(runtime: str, configured: Iterable[tuple[str, str, tuple[str, ...]]] = ()) -> Names:
    """Names by signal for a runtime; ``configured``: (runtime, signal, names) that come before the built-in ones."""
    names: dict[str, tuple[str, ...]] = dict(cast(Names, _BUILT_IN.get(runtime, {})))
    for other, signal, added in configured:
        if other == runtime:
            names[signal] = (*added, *names.get(signal, ()))
    return names
