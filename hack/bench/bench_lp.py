"""The warm tick beside its peers: scipy's linprog, and the same programme rebuilt in PuLP each time.

All solve the same ticks of the same fleets (every tick all demands and trims move by 2 %), interleaved in one run, and
must agree on the objective. The warm tick counts everything from the snapshot to the verdict; the peers are handed
the finished arrays, and their time is build, solve and reading the answer. Medians with the spread of the middle
half; ratios to the warm tick. Noise of a shared machine hits all of them alike.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from pulp import HiGHS, LpAffineExpression, LpConstraint, LpMinimize, LpProblem, LpVariable
from scipy import sparse
from scipy.optimize import linprog

from headrace_api.base import Metadata
from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import RoutingPolicySpec
from headrace_operator.optimizer import WarmModel, solve
from headrace_operator.optimizer.layout import build_layout
from headrace_operator.optimizer.problem import Problem, build_problem, shedding_open
from headrace_operator.optimizer.programme import Numbers, Shape, base_entries, numbers, pair_entries, shape_of
from headrace_operator.optimizer.readings import Reader
from headrace_operator.snapshot.model import (
    EngineState,
    PairNetwork,
    PolicyState,
    PreviousRoute,
    Snapshot,
    SourceDemand,
)
from headrace_operator.snapshot.signals import Factor

POLICY = "bench/fleet"
SIZES = ((3, 6), (10, 50), (50, 200))
SETTLED = 12  # ticks before measuring: a minute, after which the model has the columns it needs
AGREEMENT = 6e-5  # relative, of objectives; the warm model tolerates a twentieth of the deadband of 1e-3


def fleet(frontends: int, engines: int, seed: int = 1) -> Snapshot:
    """Front-ends and engines with random capacities and round trips, at 70 % of capacity."""
    rng = random.Random(seed)
    names = [f"fe-{index:03d}" for index in range(frontends)]
    states = tuple(_engine(rng, index) for index in range(engines))
    offered = [rng.uniform(0.5, 1.5) for _ in names]
    total = sum(state.ready * float(state.spec.capacity.per_replica.requests_per_second or 0) for state in states)
    spec = {"models": [{"name": "m"}], "frontends": [{"name": name} for name in names]}
    return Snapshot(
        at=0.0,
        engines=states,
        policies=(PolicyState(id=POLICY, uid="bench", generation=1, spec=msgspec.convert(spec, RoutingPolicySpec)),),
        demand=tuple(
            SourceDemand(
                policy=POLICY,
                frontend=name,
                model="m",
                prompt_class=0,
                requests_per_second=0.7 * total * part / sum(offered),
                deviation=0.0,
                input_tokens=900.0,
                output_tokens=220.0,
                origin="Measured",
                priorities=(("batch", 10, 0.3), ("interactive", 100, 0.7)),
            )
            for name, part in zip(names, offered, strict=True)
        ),
        network=tuple(
            PairNetwork(policy=POLICY, frontend=name, engine=state.id, round_trip=rng.uniform(0.001, 0.15))
            for name in names
            for state in states
        ),
    )


def _engine(rng: random.Random, index: int) -> EngineState:
    ttft = [(0, 90), (60, 160), (80, 400), (100, 2000)]
    spec = {
        "models": [{"name": "m"}],
        "endpoints": {"service": {"name": "vllm", "port": 8000}},
        "capacity": {"perReplica": {"requestsPerSecond": rng.randint(5, 15)}},
        "profile": {
            "reference": {"inputTokens": 900, "outputTokens": 220},
            "ttft": [{"utilizationPercent": at, "latency": f"{value}ms"} for at, value in ttft],
            "tbot": [{"utilizationPercent": at, "latency": f"{value}ms"} for at, value in ((0, 9), (100, 31))],
        },
    }
    metadata = Metadata(name=f"engine-{index:04d}", namespace="bench")
    return EngineState(
        id=f"{metadata.namespace}/{metadata.name}",
        spec=msgspec.convert(spec, InferenceEngineSpec),
        ready=float(rng.randint(2, 12)),
    )


def with_weights(snapshot: Snapshot) -> Snapshot:
    """The snapshot after its own optimum was published: every tick has weights in force."""
    solution = solve(snapshot, (POLICY,))
    rate = {entry.source: entry.demand for entry in solution.sources}
    return msgspec.structs.replace(
        snapshot,
        previous=tuple(
            PreviousRoute(
                policy=POLICY,
                frontend=route.source.frontend,
                model="m",
                prompt_class=0,
                engine=route.engine,
                weight=route.flow / rate[route.source],
            )
            for route in solution.routes
            if route.flow > 0
        ),
    )


def ticks(snapshot: Snapshot, count: int, seed: int = 2) -> list[Snapshot]:
    """A walk: every demand and every trim moves by 2 % a tick."""
    rng = random.Random(seed)
    return [
        msgspec.structs.replace(
            snapshot,
            at=5.0 * step,
            demand=tuple(
                msgspec.structs.replace(entry, requests_per_second=entry.requests_per_second * rng.gauss(1, 0.02))
                for entry in snapshot.demand
            ),
            engines=tuple(
                msgspec.structs.replace(entry, trim=Factor(value=min(1.5, max(0.5, rng.gauss(1, 0.02)))))
                for entry in snapshot.engines
            ),
        )
        for step in range(count)
    ]


def whole_programme(snapshot: Snapshot) -> tuple[Problem, Shape, Numbers]:
    """The programme with every pair's columns: what a peer without candidates solves."""
    layout = build_layout(snapshot, (POLICY,))
    shedding = shedding_open(snapshot, (POLICY,))
    problem = build_problem(layout, Reader(layout).read(snapshot), {}, shedding=shedding)
    unit = problem.shed_work
    shape = shape_of(problem, problem.allowed, problem.allowed & (problem.previous > 0), unit)
    return problem, shape, numbers(problem, shape, unit)


def by_scipy(shape: Shape, values: Numbers) -> float:
    """Objective by scipy.optimize.linprog (HiGHS inside)."""
    entries = [np.concatenate(parts) for parts in zip(base_entries(shape), pair_entries(shape), strict=True)]
    matrix = sparse.csr_matrix((entries[2], (entries[0], entries[1])), shape=(shape.rows, shape.columns))
    equal = values.row_lower == values.row_upper
    limited = ~equal & np.isfinite(values.row_upper)
    bounds: Any = np.column_stack([np.zeros(shape.columns), values.upper])
    found = linprog(
        values.cost,
        A_ub=matrix[limited] if limited.any() else None,
        b_ub=values.row_upper[limited] if limited.any() else None,
        A_eq=matrix[equal],
        b_eq=values.row_upper[equal],
        bounds=bounds,
    )
    return float(found.fun or 0.0)


def by_pulp(shape: Shape, values: Numbers) -> float:
    """Objective by PuLP, declared and solved from nothing, values read back one by one."""
    problem = LpProblem("rebuild", LpMinimize)
    bounds = [bound if np.isfinite(bound) else None for bound in values.upper.tolist()]
    variables = [LpVariable(f"c{index:08d}", 0, bound) for index, bound in enumerate(bounds)]
    problem.setObjective(LpAffineExpression(list(zip(variables, values.cost.tolist(), strict=True))))
    rows: list[list[tuple[LpVariable, float]]] = [[] for _ in range(shape.rows)]
    for entries in (base_entries(shape), pair_entries(shape)):
        for row, column, value in zip(*(part.tolist() for part in entries), strict=True):
            rows[row].append((variables[column], value))
    for index, terms in enumerate(rows):
        if np.isfinite(values.row_upper[index]):
            sense = 0 if values.row_lower[index] == values.row_upper[index] else -1
            problem.addConstraint(
                LpConstraint(LpAffineExpression(terms), sense, f"r{index:08d}", float(values.row_upper[index]))
            )
    problem.solve(HiGHS(msg=False, threads=1))
    flows = [variable.varValue for variable in variables]
    return float(np.asarray(flows) @ values.cost)


def timed(call: Callable[[], float]) -> tuple[float, float]:
    """(milliseconds, result)."""
    start = time.perf_counter()
    result = call()
    return (time.perf_counter() - start) * 1e3, result


def measure(frontends: int, engines: int, rounds: int) -> dict[str, Any]:
    """One size: times in ms by contender, interleaved tick by tick."""
    walk = ticks(with_weights(fleet(frontends, engines)), rounds + SETTLED)
    model = WarmModel()
    times: dict[str, list[float]] = {"warm": [], "scipy": [], "pulp": [], "pulp, same columns": []}
    first = timed(lambda: model.assess(walk[0], (POLICY,)).objective_new)[0]
    for snapshot in walk[1:SETTLED]:
        model.assess(snapshot, (POLICY,))
    for snapshot in walk[SETTLED:]:
        problem, shape, values = whole_programme(snapshot)
        narrow = narrowed(model, problem)
        contenders: dict[str, Callable[[], float]] = {
            "warm": lambda snapshot=snapshot: model.assess(snapshot, (POLICY,)).objective_new,  # type: ignore[misc]
            "scipy": lambda shape=shape, values=values: by_scipy(shape, values),  # type: ignore[misc]
            "pulp": lambda shape=shape, values=values: by_pulp(shape, values),  # type: ignore[misc]
            "pulp, same columns": lambda narrow=narrow: by_pulp(*narrow),  # type: ignore[misc]
        }
        found = {}
        for name, call in contenders.items():
            spent, found[name] = timed(call)
            times[name].append(spent)
        agree(found, exact=("warm", "scipy", "pulp"))
    return {
        "frontends": frontends,
        "engines": engines,
        "columns": shape.columns,
        "firstMilliseconds": first,
        "milliseconds": {name: summary(values) for name, values in times.items()},
        "ratioToWarm": {
            name: statistics.median(values) / statistics.median(times["warm"]) for name, values in times.items()
        },
    }


def narrowed(model: WarmModel, problem: Problem) -> tuple[Shape, Numbers]:
    """The programme with the columns that the warm model has at this moment."""
    unit = problem.shed_work
    candidates = model.candidates
    shape = shape_of(problem, candidates, candidates & (problem.previous > 0), unit)
    return shape, numbers(problem, shape, unit)


def agree(found: dict[str, float], exact: tuple[str, ...]) -> None:
    """Stops the benchmark when contenders disagree: then they solve different problems."""
    values = [found[name] for name in exact]
    if max(values) - min(values) > AGREEMENT * abs(values[0]):
        raise SystemExit(f"bench-lp: the contenders disagree on the objective: {found}")


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles, ms."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "lower": low, "upper": high}


def table(results: list[dict[str, Any]]) -> str:
    """Aligned text."""
    lines = [f"{'size':>8} {'columns':>8}  {'contender':<20} {'median ms':>10}  {'middle half':>17} {'ratio':>8}"]
    for result in results:
        size = f"{result['frontends']}x{result['engines']}"
        for name, spread in result["milliseconds"].items():
            half = f"{spread['lower']:.2f} .. {spread['upper']:.2f}"
            ratio = result["ratioToWarm"][name]
            lines.append(
                f"{size:>8} {result['columns']:>8}  {name:<20} {spread['median']:>10.2f}  {half:>17} {ratio:>7.1f}x"
            )
            size = ""
        lines.append(f"{'':>8} {'':>8}  {'warm, first tick':<20} {result['firstMilliseconds']:>10.2f}")
    return "\n".join(lines)


def main() -> int:
    """Runs all sizes; exit 1 when the warm tick is not 10 times as fast as the rebuild at the largest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--rounds", type=int, default=15, help="measured ticks a size")
    arguments = parser.parse_args()
    results = [measure(frontends, engines, arguments.rounds) for frontends, engines in SIZES]
    print(json.dumps(results, indent=2) if arguments.output == "json" else table(results))
    fast = results[-1]["ratioToWarm"]["pulp"] >= 10.0
    print("" if fast else "bench-lp: less than 10 times as fast as the rebuild", file=sys.stderr)
    return 0 if fast else 1


if __name__ == "__main__":
    raise SystemExit(main())
