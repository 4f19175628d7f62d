"""What the operator learns of prompts: their lengths, and demand under labels that say what they counted."""

from __future__ import annotations

from headrace_api.names import METRIC_OFFERED, METRIC_PROMPT_TOKENS, prompt_class_labels
from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.telemetry.accounting import Account, Ledger
from headrace_router.telemetry.metrics import PROMPT_BUCKETS, Metrics
from headrace_router.telemetry.snapshot import rendered
from support.router_core import make_table, route


def test_labels_say_between_which_lengths() -> None:
    assert prompt_class_labels(()) == ("0",)
    assert prompt_class_labels((600, 1500)) == ("0-600", "600-1500", "1500-")


def split(*edges: int) -> RoutingTable:
    classes = [{"routes": [route("a", 10_000)]}] * (len(edges) + 1)
    return make_table({"a": 10_000}, classEdges=list(edges), models=[{"model": "m", "classes": classes}])


def offer(ledger: Ledger, table: RoutingTable, body_bytes: int, *, client_retry: bool = False) -> None:
    model = build_view([table]).models["m"]
    Account(ledger, model, "default", body_bytes, client_retry, 0.0)


def series(metrics: Metrics, name: str) -> dict[str, float]:
    (family,) = (family for family in metrics.families if family.name == name)
    lines = "".join(map(rendered, family.parts())).splitlines()
    return {line.rpartition(" ")[0].partition("{")[2]: float(line.rpartition(" ")[2]) for line in lines}


def counted(metrics: Metrics) -> dict[str, float]:
    found = series(metrics, METRIC_OFFERED)
    return {labels.partition('prompt_class="')[2].rstrip('"}'): value for labels, value in found.items()}


def test_counters_of_two_edges_never_mix() -> None:
    ledger = Ledger(Metrics())
    for table in (make_table({"a": 10_000}), split(600, 1500), split(1000, 3000)):
        ledger.prepare(build_view([table]))
        offer(ledger, table, 4 * 1200)
    assert counted(ledger.metrics) == {
        "0": 1,
        "0-600": 0,
        "600-1500": 1,
        "1500-": 0,
        "0-1000": 0,
        "1000-3000": 1,
        "3000-": 0,
    }


def test_lengths_of_offered_requests_by_model() -> None:
    ledger = Ledger(Metrics())
    table = make_table({"a": 10_000})
    for tokens in (70, 1500, 10**7):
        offer(ledger, table, 4 * tokens)
    offer(ledger, table, 4, client_retry=True)
    found = series(ledger.metrics, METRIC_PROMPT_TOKENS)
    below = {labels.partition('le="')[2].rstrip('"}'): value for labels, value in found.items() if "le=" in labels}
    assert (below["50.0"], below["75.0"], below["1000.0"], below["1500.0"], below["+Inf"]) == (0, 1, 1, 2, 3)
    assert len(below) == len(PROMPT_BUCKETS) + 1
