"""The solver: PuLP declares the programme, HiGHS solves it. The only module that knows either.

On the routing-weight path. Runs off the event loop (HiGHS releases the GIL). Structure and names are declared in
PuLP; numbers are pushed as arrays into the HiGHS object that PuLP built, which keeps its basis between runs. An
answer is only a candidate here: `residuals.checked` decides whether it may be used. Never changes `threads`, which
one process must not; always minimises, so that duals have one sign. Infinite right-hand sides are never shown to
PuLP, which raises on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import highspy
import numpy as np
from pulp import HiGHS, LpAffineExpression, LpConstraint, LpMinimize, LpProblem, LpVariable
from pulp.constants import LpConstraintEQ, LpConstraintLE
from pulp.v4_migration import set_v4_migration_warnings

from headrace_operator.optimizer.layout import Ints
from headrace_operator.optimizer.programme import Entries, Numbers, Shape, base_entries, pair_entries
from headrace_operator.snapshot.curves import Floats

# PuLP 4 needs Python 3.12; until then its hints about 4.0 are noise, and its own HiGHS interface sets them off.
set_v4_migration_warnings(False)


def _greeted() -> None:
    """Take the library's greeting, which the first object of a process prints on standard output whatever PuLP asks.

    Done here by an object whose console is off, so that no shell and nobody who embeds `solve` ever sees it. The
    binding's own class prints while it is made, before it can be told; its base doesn't.
    https://github.com/ERGO-Code/HiGHS/issues/1702
    """
    silent: Any = highspy.Highs.__base__()
    silent.setOptionValue("log_to_console", False)
    silent.clear()


_greeted()

TIME_LIMIT = 30.0  # s, of a fresh solve; the largest measured instance takes under two
TOLERANCE = 1e-9  # of feasibility, and the least of optimality: small sources are 1e-6 of a large fleet
COST_DIGITS = 1e-14  # of the largest cost: the optimality that double precision still tells apart
MOST_TOLERANT = 1e-2  # s a unit of work, among costs of 1e12
LOOSER = 1e3  # once, where the solver gave up at its own tolerances; the residuals judge the answer all the same


class Answer(NamedTuple):
    """What the solver said. status: its own word; arrays by column and row. objective: of the minimisation."""

    status: str
    objective: float
    values: Floats
    row_duals: Floats
    column_duals: Floats


class LoadedProgramme:
    """One programme in one HiGHS object. The basis stays between runs; columns may be added, never removed."""

    def __init__(self, shape: Shape, numbers: Numbers, *, time_limit: float | None = None) -> None:
        self._highs = _declared(shape, time_limit)
        self._numbers = numbers
        self._optimality = TOLERANCE
        self._tolerate(numbers)
        columns, rows = shape.columns, shape.rows
        every_column, every_row = _indices(np.arange(columns)), _indices(np.arange(rows))
        self._highs.changeColsCost(columns, every_column, numbers.cost)
        self._highs.changeColsBounds(columns, every_column, np.zeros(columns), numbers.upper)
        self._highs.changeRowsBounds(rows, every_row, numbers.row_lower, numbers.row_upper)

    def push(self, numbers: Numbers) -> None:
        """Replaces the numbers; only those that differ are sent."""
        before, highs = self._numbers, self._highs
        at = np.flatnonzero(numbers.cost != before.cost)
        if at.size:
            highs.changeColsCost(at.size, _indices(at), numbers.cost[at])
        at = np.flatnonzero(numbers.upper != before.upper)
        if at.size:
            highs.changeColsBounds(at.size, _indices(at), np.zeros(at.size), numbers.upper[at])
        at = np.flatnonzero((numbers.row_upper != before.row_upper) | (numbers.row_lower != before.row_lower))
        if at.size:
            highs.changeRowsBounds(at.size, _indices(at), numbers.row_lower[at], numbers.row_upper[at])
        self._numbers = numbers
        self._tolerate(numbers)

    def grow(self, shape: Shape, numbers: Numbers) -> None:
        """Adds the pair columns by which ``shape`` is longer, then takes over its numbers."""
        start = len(self._numbers.cost) - shape.first_pair
        added = len(shape.pair_source) - start
        entries = pair_entries(shape, start)
        starts = np.searchsorted(entries.column, shape.first_pair + start + np.arange(added))
        fresh = slice(shape.first_pair + start, None)
        self._highs.addCols(
            added,
            numbers.cost[fresh],
            np.zeros(added),
            numbers.upper[fresh],
            len(entries.row),
            _indices(starts),
            _indices(entries.row),
            entries.value,
        )
        old = slice(0, shape.first_pair + start)
        self.push(numbers._replace(cost=numbers.cost[old], upper=numbers.upper[old]))
        self._numbers = numbers

    def run(self) -> Answer:
        """Solves from the basis at hand."""
        status = self._solved()
        if status not in ("Optimal", "Time limit reached"):
            self._highs.setOptionValue("dual_feasibility_tolerance", min(self._optimality * LOOSER, MOST_TOLERANT))
            self._highs.clearSolver()
            status = self._solved()
            self._highs.setOptionValue("dual_feasibility_tolerance", self._optimality)
        solution = self._highs.getSolution()
        return Answer(
            status=status,
            objective=float(self._highs.getObjectiveValue()),
            values=np.asarray(solution.col_value, dtype=np.float64),
            row_duals=np.asarray(solution.row_dual, dtype=np.float64),
            column_duals=np.asarray(solution.col_dual, dtype=np.float64),
        )

    def _solved(self) -> str:
        self._highs.run()
        return str(self._highs.modelStatusToString(self._highs.getModelStatus()))

    def _tolerate(self, numbers: Numbers) -> None:
        """Optimality in keeping with the largest cost, in powers of ten so that it seldom changes."""
        digits = COST_DIGITS * max(float(numbers.cost.max(initial=0.0)), 1e-300)
        wanted = float(np.clip(10.0 ** np.ceil(np.log10(digits)), TOLERANCE, MOST_TOLERANT))
        if wanted != self._optimality:
            self._highs.setOptionValue("dual_feasibility_tolerance", wanted)
            self._optimality = wanted


def _indices(values: Ints) -> Any:
    return np.asarray(values, dtype=np.int32)


def _declared(shape: Shape, time_limit: float | None) -> Any:
    """The HiGHS object of the shape, declared in PuLP: columns and rows by index, user names nowhere."""
    problem = LpProblem("headrace", LpMinimize)
    variables = [LpVariable(f"c{index:08d}", 0) for index in range(shape.columns)]
    problem.setObjective(LpAffineExpression([(variable, 1.0) for variable in variables]))
    rows: list[list[tuple[LpVariable, float]]] = [[] for _ in range(shape.rows)]
    for entries in (base_entries(shape), pair_entries(shape)):
        _fill(rows, variables, entries)
    shift_from = shape.sources + shape.engines
    for index, terms in enumerate(rows):
        sense = LpConstraintEQ if index < shift_from else LpConstraintLE
        problem.addConstraint(LpConstraint(LpAffineExpression(terms), sense, f"r{index:08d}", 0.0))
    options = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    solver = HiGHS(msg=False, threads=1, timeLimit=time_limit, **options)
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    return problem.solverModel


def _fill(rows: list[list[tuple[LpVariable, float]]], variables: list[LpVariable], entries: Entries) -> None:
    for row, column, value in zip(entries.row.tolist(), entries.column.tolist(), entries.value.tolist(), strict=True):
        rows[row].append((variables[column], value))
