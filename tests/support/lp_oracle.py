"""An oracle for the optimizer: the routing problem built again from plain manifests, and proofs that need no solver.

It shares no formula or array with the product (only where the curves are broken into segments, a free choice); it
reads the design's text and the instance's dict. Two judgements: a certificate (the published flows and prices are
primal and dual feasible, and their objectives meet), and the true convex cost, of which the product's pieces are an
approximation, minimised by an interior-point solver.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

import clarabel
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from headrace_operator.optimizer.solution import Solution
from support.lp_instances import Instance
from support.lp_oracle_engine import Engine, milliseconds

PIECES = ((0.10, 1.0), (0.25, 1.1), (0.50, 1.2), (1.00, 1.3))


class Oracle:
    """The whole problem of one instance, by pairs and sources in dictionaries."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        policies = instance["policies"]
        self.engines = {}
        for raw in instance["engines"]:
            served = {model["name"] for model in raw["spec"]["models"]}
            asked = [
                policies[entry["policy"]]["objective"]["targetUtilizationPercent"] / 100
                for entry in instance["demand"]
                if entry["model"] in served and "targetUtilizationPercent" in policies[entry["policy"]]["objective"]
            ]
            fixed = min(instance["fixed"].get(f"default/{raw['name']}", 0.0), float(raw["ready"]))
            self.engines[raw["name"]] = Engine(raw, min(asked, default=None), fixed)
        self.sources = {(e["policy"], e["frontend"], e["model"], e["prompt_class"]): e for e in instance["demand"]}
        self.pairs = {
            (key, name): None
            for key, entry in self.sources.items()
            for name, engine in self.engines.items()
            if entry["model"] in {model["name"] for model in engine.raw["spec"]["models"]}
        }
        self.work = {}
        self.direct = {}
        self.previous = {}
        self.gamma = {}
        for key, name in self.pairs:
            entry, engine = self.sources[key], self.engines[name]
            self.work[key, name] = engine.work(entry["input_tokens"], entry["output_tokens"])
            unloaded = engine.stay(entry["input_tokens"], entry["output_tokens"], 0.0) / engine.raw["trim"]
            self.direct[key, name] = instance["round_trip"][key[0], key[1], name] + unloaded
            self.previous[key, name] = instance["previous"].get((*key, name), 0.0)
            self.gamma[key, name] = self._gamma(key, name)
        self._prices()

    def _had(self, key: tuple[Any, ...]) -> bool:
        return any(other[:4] == key for other in self.instance["previous"])

    def _gamma(self, key: tuple[Any, ...], name: str) -> float:
        if not self._had(key):
            return 0.0
        cost = milliseconds(self.instance["policies"][key[0]]["objective"]["moveCost"]) * 30 / 600
        since = self.instance["savings"].get((*key, name))
        lasted = 0.0 if since is None else min(1.0, (self.instance["at"] - since) / 60)
        return cost * (1 - lasted)

    def _prices(self) -> None:
        self.largest = {key: max(w for (k, _), w in self.work.items() if k == key) for key in self.sources}
        smallest = {key: min(w for (k, _), w in self.work.items() if k == key) for key in self.sources}
        spread = max(self.largest[key] / smallest[key] for key in self.sources)
        used = {name for _, name in self.pairs}
        steepest = max(slope for name in used for _, slope in self.engines[name].segments)
        self.latency = max((self.direct[p] + self.gamma[p]) / self.work[p] for p in self.pairs) + steepest
        self.overload = 2 * spread * self.latency
        lowest = 2 * min(spread, 10.0) ** 3 * (self.overload + self.latency)
        self.shed_price = [lowest, lowest * max(2.0, 1.4 * spread)]

    def shift(self, key: tuple[Any, ...]) -> float:
        """Requests/s of a source that may move; infinite without previous weights."""
        if not self._had(key):
            return math.inf
        percent = self.instance["policies"][key[0]]["publication"]["maxShiftPercent"]
        return float(percent) / 100 * float(self.sources[key]["rate"])

    def shed_steps(self, key: tuple[Any, ...]) -> list[tuple[int, float, float]]:
        """(priority, width in requests/s, price a request) of a source's pieces, the cheapest first."""
        entry = self.sources[key]
        steps = []
        for rank, share in enumerate(entry["shares"]):
            before = 0.0
            for until, factor in PIECES:
                price = self.shed_price[rank] * factor * self.largest[key]
                steps.append((rank, (until - before) * share * entry["rate"], price))
                before = until
        return steps

    # -- the certificate -------------------------------------------------------------------------------------------

    def primal(self, solution: Solution) -> tuple[float, float]:
        """Objective of the published flows and the largest relative violation of a constraint."""
        flow = flows_of(solution)
        worst, cost = 0.0, 0.0
        for key, entry in self.sources.items():
            routed = sum(flow[key, name] for (k, name) in self.pairs if k == key)
            shed = shed_of(solution, key)
            worst = max(worst, abs(routed + sum(shed) - entry["rate"]) / entry["rate"], -min(shed) / entry["rate"])
            for rank, share in enumerate(entry["shares"]):
                worst = max(worst, (shed[rank] - share * entry["rate"]) / entry["rate"])
                left = shed[rank]
                for other, width, price in self.shed_steps(key):
                    if other == rank:
                        cost += min(left, width) * price
                        left = max(0.0, left - width)
            moved = 0.0
            for pair in (p for p in self.pairs if p[0] == key):
                stays = min(flow[pair], self.previous[pair] * entry["rate"])
                moved += flow[pair] - stays
                cost += self.direct[pair] * flow[pair] + self.gamma[pair] * (flow[pair] - stays)
            cost += max(0.0, moved - self.shift(key)) * self.latency * self.largest[key]
        for name, engine in self.engines.items():
            load = engine.fixed + sum(flow[p] * self.work[p] for p in self.pairs if p[1] == name)
            worst = max(worst, (load - engine.hard) / engine.hard)
            for width, slope in [*engine.segments, (engine.hard - engine.soft, self.overload)]:
                cost += min(load, width) * slope
                load = max(0.0, load - width)
        return cost, max(worst, -min(flow.values()))

    def dual(self, solution: Solution) -> tuple[float, float]:
        """Lower bound on the optimum that the published prices prove, and their largest relative infeasibility."""
        price = {(*_key(entry.source),): entry.price for entry in solution.sources}
        engine_price = {entry.engine.split("/")[1]: entry.price for entry in solution.engines}
        bound, worst = 0.0, 0.0
        for name, engine in self.engines.items():
            if name not in engine_price:
                continue
            pi = engine_price[name]
            bound += pi * engine.fixed
            for width, slope in [*engine.segments, (engine.hard - engine.soft, self.overload)]:
                bound += min(0.0, slope - pi) * width
        for key, entry in self.sources.items():
            mine = [pair for pair in self.pairs if pair[0] == key]
            gross = {p: self.direct[p] + self.work[p] * engine_price[p[1]] - price[key] for p in mine}
            shift_price = 0.0
            lowest = min(gross[p] + self.gamma[p] for p in mine)
            if math.isfinite(self.shift(key)):
                shift_price = min(0.0, lowest)
                bound += shift_price * self.shift(key)
                worst = max(worst, (-shift_price - self.latency * self.largest[key]) / max(price[key], 1e-3))
            else:
                worst = max(worst, -lowest / max(price[key], 1e-3))
            bound += price[key] * entry["rate"]
            bound += sum(min(0.0, gross[p]) * self.previous[p] * entry["rate"] for p in mine)
            bound += sum(min(0.0, cost - price[key]) * width for _, width, cost in self.shed_steps(key))
        return bound, worst

    def largest_factor(self) -> float:
        """The largest common factor of all demand that the engines' hard capacities carry."""
        order, keys, names = list(self.pairs), list(self.sources), list(self.engines)
        balance = np.zeros((len(keys), len(order) + 1))
        load = np.zeros((len(names), len(order) + 1))
        for index, (key, name) in enumerate(order):
            balance[keys.index(key), index] = 1.0
            load[names.index(name), index] = self.work[key, name]
        balance[:, -1] = [-self.sources[key]["rate"] for key in keys]
        room = [self.engines[name].hard - self.engines[name].fixed for name in names]
        aim = np.append(np.zeros(len(order)), -1.0)
        found: Any = linprog(aim, A_ub=load, b_ub=room, A_eq=balance, b_eq=np.zeros(len(keys)))
        return float(found.x[-1])

    # -- the true convex cost --------------------------------------------------------------------------------------

    def true_cost(self, solution: Solution) -> float:
        """Latency, overload and movement cost of the published flows by the curves themselves; shed left out."""
        flow = flows_of(solution)
        cost = 0.0
        for key, entry in self.sources.items():
            moved = 0.0
            for pair in (p for p in self.pairs if p[0] == key):
                here = max(0.0, flow[pair] - self.previous[pair] * entry["rate"])
                cost += self.direct[pair] * flow[pair] + self.gamma[pair] * here
                moved += here
            cost += max(0.0, moved - self.shift(key)) * self.latency * self.largest[key]
        for name, engine in self.engines.items():
            load = engine.fixed + sum(flow[p] * self.work[p] for p in self.pairs if p[1] == name)
            cost += engine.excess_at(min(load, engine.soft) / engine.effective)
            cost += max(0.0, load - engine.soft) * self.overload
        return cost

    def least_true_cost(self, solution: Solution) -> float:
        """The least such cost at the published shed amounts, by clarabel."""
        order = list(self.pairs)
        count = len(order)
        keys = list(self.sources)
        # Columns: moved, stayed, beyond maxShift by source, then the pieces of each engine's curve.
        linear = [self.direct[p] + self.gamma[p] for p in order] + [self.direct[p] for p in order]
        linear += [self.latency * self.largest[key] for key in keys]
        upper = [math.inf] * count + [self.previous[p] * self.sources[p[0]]["rate"] for p in order]
        upper += [math.inf] * len(keys)
        curvature = [0.0] * len(linear)
        rows, values = [], []
        for key in keys:
            mine = [index for index, pair in enumerate(order) if pair[0] == key]
            rows.append(dict.fromkeys(mine, 1.0) | {index + count: 1.0 for index in mine})
            values.append(self.sources[key]["rate"] - sum(shed_of(solution, key)))
        for name, engine in self.engines.items():
            row = {index: self.work[p] for index, p in enumerate(order) if p[1] == name}
            row |= {index + count: work for index, work in row.items()}
            for width, left, right in engine.pieces(engine.soft / engine.effective):
                row[len(linear)] = -1.0
                curvature.append((right - left) / (width * engine.effective))
                linear.append(left)
                upper.append(width * engine.effective)
            row[len(linear)] = -1.0
            curvature.append(0.0)
            linear.append(self.overload)
            upper.append(engine.hard - engine.soft)
            rows.append(row)
            values.append(-engine.fixed)
        limits, most = [], []
        for row_index, key in enumerate(keys):
            if math.isfinite(self.shift(key)):
                mine = {index: 1.0 for index, pair in enumerate(order) if pair[0] == key}
                limits.append(mine | {2 * count + row_index: -1.0})
                most.append(self.shift(key))
        return _minimise(curvature, linear, upper, (rows, values), (limits, most))


Rows = tuple[list[dict[int, float]], list[float]]


def _matrix(rows: list[dict[int, float]], width: int) -> Any:
    return sparse.csc_matrix(
        (
            [value for row in rows for value in row.values()],
            ([index for index, row in enumerate(rows) for _ in row], [at for row in rows for at in row]),
        ),
        shape=(len(rows), width),
    )


def _minimise(curvature: list[float], linear: list[float], upper: list[float], equal: Rows, limits: Rows) -> float:
    """min 1/2 x'Dx + c'x with equal rows, limited rows, 0 <= x <= upper. An engine filled to the brim leaves no
    interior, so bounds are loosened by 1e-9."""
    width = len(linear)
    capped = [index for index, bound in enumerate(upper) if math.isfinite(bound)]
    caps = sparse.csc_matrix((np.ones(len(capped)), (range(len(capped)), capped)), shape=(len(capped), width))
    matrix = sparse.vstack([_matrix(equal[0], width), _matrix(limits[0], width), -sparse.eye(width), caps]).tocsc()
    right = np.concatenate([equal[1], limits[1], np.zeros(width), [upper[index] + 1e-9 for index in capped]])
    cones = [
        clarabel.ZeroConeT(len(equal[0])),
        clarabel.NonnegativeConeT(len(limits[0]) + width + len(capped)),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    quadratic = sparse.diags(np.maximum(curvature, 0.0)).tocsc()
    found = clarabel.DefaultSolver(quadratic, np.array(linear), matrix, right, cones, settings).solve()
    assert str(found.status) in ("Solved", "AlmostSolved"), found.status
    return float(found.obj_val)


def _key(source: Any) -> tuple[str, str, str, int]:
    return source.policy.split("/")[1], source.frontend, source.model, source.prompt_class


def flows_of(solution: Solution) -> dict[tuple[Any, str], float]:
    """Published flows by the oracle's pairs."""
    return {(_key(route.source), route.engine.split("/")[1]): route.flow for route in solution.routes}


def shed_of(solution: Solution, key: tuple[Any, ...]) -> list[float]:
    """Published shed amounts of a source, the lowest priority first."""
    index = bisect.bisect_left([_key(entry.source) for entry in solution.sources], key)
    return [amount for _, amount in solution.sources[index].shed]
