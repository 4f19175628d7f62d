"""Residuals: an answer is used only when it is proven, and arithmetic agrees with the proof.

On the routing-weight path, pure. A solver that ran out of time can call all zeros optimal; so the status is
necessary, never sufficient: values finite, bounds and rows held, and the dual objective equal to the primal one.
"""

from __future__ import annotations

import numpy as np

from headrace_operator.optimizer.programme import Numbers, Shape, base_entries, pair_entries
from headrace_operator.optimizer.solver import Answer
from headrace_operator.snapshot.curves import Floats

TOLERANCE = 1e-6  # relative to the size of what is compared


def fault_of(answer: Answer, shape: Shape, numbers: Numbers) -> str | None:
    """Why the answer may not be used; None when it may."""
    if answer.status != "Optimal":
        return f"the solver ended with {answer.status!r}; only 'Optimal' is used"
    arrays = (answer.values, answer.row_duals, answer.column_duals)
    if (len(arrays[0]), len(arrays[1])) != (shape.columns, shape.rows) or len(arrays[2]) != shape.columns:
        return f"the solver answered {len(arrays[0])} values for {shape.columns} columns"
    if not (np.isfinite(answer.objective) and all(np.isfinite(array).all() for array in arrays)):
        return "the solver's answer holds values that are not finite"
    return _bounds(answer, numbers) or _rows(answer, shape, numbers) or _gap(answer, numbers)


def _bounds(answer: Answer, numbers: Numbers) -> str | None:
    scale = max(1.0, float(np.abs(numbers.row_upper[np.isfinite(numbers.row_upper)]).max(initial=0.0)))
    below = float(-answer.values.min(initial=0.0))
    above = float((answer.values - numbers.upper).max(initial=0.0))
    if max(below, above) > TOLERANCE * scale:
        return f"the solver's answer passes a bound by {max(below, above):.3g}"
    return None


def _rows(answer: Answer, shape: Shape, numbers: Numbers) -> str | None:
    activity, size = np.zeros(shape.rows), np.zeros(shape.rows)
    for entries in (base_entries(shape), pair_entries(shape)):
        terms = entries.value * answer.values[entries.column]
        activity += np.bincount(entries.row, terms, shape.rows)
        size += np.bincount(entries.row, np.abs(terms), shape.rows)
    off = np.maximum(numbers.row_lower - activity, activity - numbers.row_upper)
    relative = off / np.maximum(size, np.where(np.isfinite(numbers.row_upper), np.abs(numbers.row_upper), 0.0) + 1e-3)
    worst = float(relative.max(initial=0.0))
    return f"the solver's answer misses a row by {worst:.3g} of its size" if worst > TOLERANCE else None


def _gap(answer: Answer, numbers: Numbers) -> str | None:
    """Strong duality: the proof that doesn't depend on the solver's word."""
    primal = float(numbers.cost @ answer.values)
    dual = _bound_value(answer.row_duals, numbers.row_lower, numbers.row_upper)
    dual += _bound_value(answer.column_duals, np.zeros(len(numbers.upper)), numbers.upper)
    scale = max(abs(primal), abs(dual), 1e-6)
    if abs(primal - dual) > TOLERANCE * scale:
        return f"the solver's answer isn't proven: primal {primal:.9g}, dual {dual:.9g}"
    return None


def _bound_value(duals: Floats, lower: Floats, upper: Floats) -> float:
    """Sum of dual x the bound it presses on: the lower for a positive dual, the upper for a negative one."""
    bound = np.where(duals > 0.0, lower, upper)
    return float((duals * np.where(np.isfinite(bound), bound, 0.0)).sum())
