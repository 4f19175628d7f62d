"""Names that operator, routers, dashboards and users share: conditions, reasons, headers, metrics, labels.

One spelling, in one place; a name here is part of the API and changes only with a note in the changelog.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final

# Response headers of the router.
HEADER_ENGINE: Final = "x-headrace-engine"
HEADER_REASON: Final = "x-headrace-reason"
HEADER_TABLE: Final = "x-headrace-table"
HEADER_REQUEST_ID: Final = "x-request-id"
HEADER_ATTEMPTS: Final = "x-headrace-attempts"
# Set by the openai and anthropic packages on their own retries.
HEADER_CLIENT_RETRY: Final = "x-stainless-retry-count"
# Obeyed by the openai and anthropic packages: do not retry a refusal.
HEADER_SHOULD_RETRY: Final = "x-should-retry"

# Labels on objects the operator makes.
LABEL_POLICY_UID: Final = "headrace.dev/policy-uid"
LABEL_POLICY: Final = "headrace.dev/policy"
LABEL_FRONTEND: Final = "headrace.dev/frontend"
LABEL_MANAGED: Final = "headrace.dev/managed-by"
# On a heartbeat: the installation that serves the namespace.
LABEL_INSTALLATION: Final = "headrace.dev/installation"

# Break-glass annotations.
ANNOTATION_FREEZE_UNTIL: Final = "headrace.dev/freeze-until"
ANNOTATION_DRAIN_UNTIL: Final = "headrace.dev/drain-until"
ANNOTATION_WHY: Final = "headrace.dev/why"

# Left on a resource by whatever takes it out of Git; history names it beside the editor.
ANNOTATION_GIT_REVISION: Final = "headrace.dev/git-revision"

# Condition types.
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
SIGNALS_FRESH: Final = "SignalsFresh"
SOLVED: Final = "Solved"
CAPACITY_SUFFICIENT: Final = "CapacitySufficient"
PUBLISHED: Final = "Published"
WEIGHTS_REALIZED: Final = "WeightsRealized"
PROFILE_DRIFT: Final = "ProfileDrift"
AVAILABLE: Final = "Available"
PENALIZED: Final = "Penalized"

# Metrics that routers write and the operator reads (demand), or that dashboards show.
METRIC_OFFERED: Final = "headrace_offered_requests_total"
METRIC_OFFERED_INPUT_TOKENS: Final = "headrace_offered_input_tokens_total"
METRIC_OFFERED_OUTPUT_TOKENS: Final = "headrace_offered_output_tokens_total"
METRIC_ENDED: Final = "headrace_ended_requests_total"  # the requests behind the two token counters
METRIC_CLIENT_RETRIES: Final = "headrace_client_retries_total"
METRIC_REQUESTS: Final = "headrace_requests_total"
# Of answers that stated their usage, by model: body bytes and input tokens. Their ratio is learned by the operator.
METRIC_USAGE_BYTES: Final = "headrace_usage_body_bytes_total"
METRIC_USAGE_TOKENS: Final = "headrace_usage_input_tokens_total"
# A histogram of offered requests' input tokens, as their bytes tell.
METRIC_PROMPT_TOKENS: Final = "headrace_prompt_tokens"
METRIC_SHED: Final = "headrace_shed_total"
METRIC_RETRIES: Final = "headrace_retries_total"
METRIC_IN_FLIGHT: Final = "headrace_in_flight_requests"
METRIC_TTFT: Final = "headrace_time_to_first_token_seconds"
METRIC_DURATION: Final = "headrace_request_duration_seconds"
METRIC_TABLE_REVISION: Final = "headrace_table_revision"
METRIC_TABLE_ISSUED: Final = "headrace_table_issued_timestamp_seconds"
# When the router applied the table in use: with the issue time, how long a publication takes.
METRIC_TABLE_APPLIED: Final = "headrace_table_applied_timestamp_seconds"
METRIC_TABLE_WATCHED: Final = "headrace_table_watched"
METRIC_TABLE_REJECTS: Final = "headrace_table_rejects_total"
METRIC_HEARTBEAT_AGE: Final = "headrace_operator_heartbeat_age_seconds"
METRIC_EJECTED: Final = "headrace_ejected_endpoints"
METRIC_ENDPOINTS: Final = "headrace_endpoints"  # by engine: addresses that a router knows and can use

# A router's own measurement to each engine it may use: median of its connects, and how many it is the median of.
METRIC_ROUND_TRIP: Final = "headrace_round_trip_seconds"
METRIC_ROUND_TRIP_SAMPLES: Final = "headrace_round_trip_samples"

# Label names on router metrics; namespace, pod, job, instance, service and endpoint are renamed by scraping.
LABELS_DEMAND: Final = ("policy_namespace", "policy", "frontend", "model", "priority", "prompt_class")


@lru_cache(maxsize=64)
def prompt_class_labels(edges: tuple[int, ...]) -> tuple[str, ...]:
    """Values of the label prompt_class, by class: the input tokens it lies between, or "0" where there is one class.

    So a counter says for ever what it counted, also when the edges of the table move.
    """
    if not edges:
        return ("0",)
    bounds = ("0", *(str(edge) for edge in edges), "")
    return tuple(f"{low}-{high}" for low, high in pairwise(bounds))


# Leases: the leader's, in the operator's namespace; the heartbeat beside the tables, by which routers judge its life.
LEADER_LEASE: Final = "headrace-operator"
HEARTBEAT_LEASE: Final = "headrace-heartbeat"

# Files beside the tables in standalone mode.
HEARTBEAT_FILE: Final = "heartbeat"
HEARTBEAT_STALE_SECONDS: Final = 60.0
