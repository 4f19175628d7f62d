"""The plan itself: inputs -> snapshot -> strategies -> report, tables and checks. No printing.

Shared by ``plan`` and ``explain``. Uses the same pure core as the operator, so that a plan is what would be published.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace_api.commands import InputError
from headrace_api.table import Identity, RoutingTable
from headrace_operator.cli.inputs import Inputs, inputs_of
from headrace_operator.decision.publication import taken_names
from headrace_operator.decision.tables.build import build_table, view_of
from headrace_operator.decision.tables.encode import TableTooLarge, configmap_name, stamped, too_large
from headrace_operator.decision.tables.slack import held_slack, slack_of
from headrace_operator.decision.why.book import open_book
from headrace_operator.decision.why.report import PlanFrontend, PlanPolicy, PlanReport, PlanRoute, plan_report
from headrace_operator.decision.why.text import percent, plain
from headrace_operator.decision.why.what_if import Relief, best_replica
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.clock import rfc3339
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.store.manifests import SUFFIXES, read_manifests
from headrace_operator.strategies.base import ComponentResult
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import fixed_for, run_strategies

PLAN_IDENTITY: Final = Identity(uid="plan", term=0, revision=0)
GIT_SECONDS: Final = 60.0
ROUNDING_PERCENT: Final = 0.01  # tables' weights are integers of 10,000: no more is a move


class Plan(NamedTuple):
    """A plan. tables: (ConfigMap's name, table) of Enforce policies, sorted. refused: policies without a plan."""

    snapshot: Snapshot
    results: tuple[ComponentResult, ...]
    report: PlanReport
    tables: tuple[tuple[str, RoutingTable], ...]
    too_large: tuple[TableTooLarge, ...]
    refused: tuple[str, ...] = ()


def make_plan(inputs: Inputs, previous: Sequence[RoutingTable]) -> Plan:
    """Solve once."""
    snapshot = build_snapshot(inputs.engines, inputs.policies, inputs.signals, at=inputs.at, previous=previous)
    began = time.perf_counter()
    results = run_strategies(snapshot)
    took = time.perf_counter() - began
    reliefs = [_relief(snapshot, result, results) for result in results]
    report = plan_report(snapshot, results, seconds=round(took, 6), reliefs=reliefs)
    tables, oversized = _tables(snapshot, results)
    refused = tuple(
        f"{name}: {result.solution.message}"
        for result in results
        if result.strategy == "Feedback"
        for name in result.policies
    )
    return Plan(snapshot, results, report, tables, oversized, refused)


def _relief(snapshot: Snapshot, result: ComponentResult, results: tuple[ComponentResult, ...]) -> Relief | None:
    """Where one more replica helps most, while something is refused."""
    book = open_book(snapshot, result)
    if not book.priced or not any(book.shed(source) > 0 for source in book.sources if source in book.routes):
        return None
    return best_replica(book, optimized, fixed_for(snapshot, results))


def _tables(
    snapshot: Snapshot, results: Sequence[ComponentResult]
) -> tuple[tuple[tuple[str, RoutingTable], ...], tuple[TableTooLarge, ...]]:
    policies = {policy.id: policy for policy in snapshot.policies}
    taken = taken_names(snapshot)
    tables: list[tuple[str, RoutingTable]] = []
    oversized: list[TableTooLarge] = []
    for result in results:
        for name in result.policies if not result.shadow else ():
            for frontend in policies[name].spec.frontends:
                view = view_of(snapshot, policies[name], frontend, result.solution)
                table = build_table(view, held_slack(None, slack_of(view)))
                if table is None or (name, frontend.name) in taken:
                    continue
                table = stamped(table, PLAN_IDENTITY, rfc3339(snapshot.at))
                fault = too_large(table)
                if fault is None:
                    tables.append((configmap_name(name, frontend), table))
                else:
                    oversized.append(fault)
    return tuple(sorted(tables, key=lambda entry: (entry[1].policy_namespace, entry[0]))), tuple(oversized)


def base_plan(revision: str, files: Sequence[str], namespace: str, signals: str | None, at: float) -> Plan:
    """The plan of the same files as they were at a Git revision, with the same signals.

    Raises:
        InputError: not a Git checkout, or the revision is not known.
    """
    found = [entry for path in files for entry in _at_revision(revision, path)]
    inputs = inputs_of(read_manifests(found, namespace=namespace), namespace, signals, ())
    return make_plan(inputs._replace(at=at), ())


def _at_revision(revision: str, path: str) -> list[tuple[str, bytes]]:
    if path == "-":
        raise InputError(["--base: standard input has no Git revision; right would be -f FILE or DIR"])
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    listing = _git(folder, "ls-tree", "-z", "--name-only", revision, "--", "./" if place.is_dir() else place.name)
    names = [name for name in listing.decode().split("\0") if name.lower().endswith(SUFFIXES)]
    return [(f"{revision}:{folder / name}", _git(folder, "show", f"{revision}:./{name}")) for name in sorted(names)]


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            check=False,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError([f"--base: git can't be run: {error}"]) from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["git failed"]
        raise InputError([f"--base: {words[-1]}"])
    return done.stdout


def compared_with(plan: Plan, base: Plan) -> Plan:
    """The plan with the base's weights as what stood before."""
    before = {
        (policy.namespace, policy.name, frontend.name, frontend.model, route.engine): route
        for policy in base.report.policies
        for frontend in policy.frontends
        for route in frontend.routes
    }
    policies = tuple(
        msgspec.structs.replace(
            policy, frontends=tuple(_compared(policy, frontend, before) for frontend in policy.frontends)
        )
        for policy in plan.report.policies
    )
    return plan._replace(report=msgspec.structs.replace(plan.report, policies=policies))


def _compared(
    policy: PlanPolicy, frontend: PlanFrontend, before: Mapping[tuple[str, str, str, str, str], PlanRoute]
) -> PlanFrontend:
    def was(route: PlanRoute) -> float:
        old = before.get((policy.namespace, policy.name, frontend.name, frontend.model, route.engine))
        return old.weight if old is not None else 0.0

    routes = tuple(msgspec.structs.replace(route, previous_weight=was(route)) for route in frontend.routes)
    return msgspec.structs.replace(frontend, routes=routes)


def failed_checks(
    report: PlanReport,
    *,
    fail_on_shed: bool,
    max_shed: float | None,
    max_shift: float | None,
    min_headroom: float | None,
) -> list[str]:
    """One sentence a failed check; bounds in percent."""
    failures: list[str] = []
    for policy in report.policies:
        name = f"{policy.namespace}/{policy.name}"
        shed = 100 * policy.shed / policy.demand if policy.demand > 0 else 0.0
        if fail_on_shed and shed > 0:
            failures.append(f"{name}: {plain(policy.shed)} requests/s are refused (--fail-on-shed)")
        if max_shed is not None and shed > max_shed:
            failures.append(f"{name}: {percent(shed / 100)} is refused, more than --max-shed {max_shed:g} %")
        if max_shift is not None:
            failures += [
                f"{name}: {frontend.name} moves {percent(shift / 100)}, more than --max-shift {max_shift:g} %"
                for frontend in policy.frontends
                if (shift := shifted(frontend)) > max_shift + ROUNDING_PERCENT
            ]
        left = headroom(policy)
        if min_headroom is not None and left < min_headroom:
            failures.append(f"{name}: headroom is {percent(left / 100)}, less than --min-headroom {min_headroom:g} %")
    return failures


def shifted(frontend: PlanFrontend) -> float:
    """Percent of a front-end's traffic that goes elsewhere than before: half the L1 change of its weights."""
    change = sum(abs(route.weight - route.previous_weight) for route in frontend.routes)
    refused = frontend.shed / frontend.demand if frontend.demand > 0 else 0.0
    before = 1.0 - sum(route.previous_weight for route in frontend.routes)
    return 50.0 * (change + abs(refused - before))


def headroom(policy: PlanPolicy) -> float:
    """Percent of the capacity in reach that is not in use."""
    capacity = sum(engine.capacity for engine in policy.engines)
    load = sum(engine.load for engine in policy.engines)
    return 100.0 * max(0.0, 1.0 - load / capacity) if capacity > 0 else 0.0
