"""Feedback: weights nudged from smoothed signals. Not part of this version; a policy that asks for it is told so."""

from __future__ import annotations

from typing import Final

from headrace_operator.strategies.base import NotAvailable

FEEDBACK: Final = NotAvailable(
    "Feedback",
    "strategy.type Feedback is not available in this version; use Optimized, Nearest, RoundRobin or Static",
)
