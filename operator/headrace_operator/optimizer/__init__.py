"""The optimizer: which share of each source's traffic goes to which engine, and at which prices.

Snapshot -> Problem -> Solution. Pure; only `solver` knows PuLP and HiGHS. What other packages may call is named here.
"""

from headrace_operator.optimizer.cold import overloaded, solve
from headrace_operator.optimizer.components import components
from headrace_operator.optimizer.evaluate import EligiblePair, eligible_pairs, evaluate, ineligible_pairs
from headrace_operator.optimizer.savings import next_savings
from headrace_operator.optimizer.warm import Verdict, WarmModel

__all__ = [
    "EligiblePair",
    "Verdict",
    "WarmModel",
    "components",
    "eligible_pairs",
    "evaluate",
    "ineligible_pairs",
    "next_savings",
    "overloaded",
    "solve",
]
