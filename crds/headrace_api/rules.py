"""Rules across fields: what the API server checks by CEL and the manifests' reader by a mirror of each in Python.

One Rule stands at one type and speaks of ``self``, a value of it. The message is static: a computed one broke the API
server's cost budget. Bounds of single durations and quantities are not here; the generator makes rules of them.

CEL that only Kubernetes has is used where needed: sum() and isSorted() of lists (1.28), quantity() (1.29).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_api.base import MAX_RESOURCE_NAME
from headrace_api.engine import (
    Endpoints,
    InferenceEngine,
    InferenceEngineSpec,
    PerReplica,
    Profile,
    ServedModel,
)
from headrace_api.policy import (
    AffinityKey,
    Demand,
    Ejection,
    RetryBudget,
    RoutingPolicy,
    RoutingPolicySpec,
    Shedding,
    Staleness,
)


@dataclass(frozen=True)
class Rule:
    """A CEL expression that must be true, the field it blames (JSON name under ``self``; "" = self), what is wrong."""

    expression: str
    message: str
    field: str = ""


SHORT_NAME: Final = Rule(
    f"size(self.metadata.name) <= {MAX_RESOURCE_NAME}",
    f"metadata.name has more than {MAX_RESOURCE_NAME} characters; it becomes a label's value",
)

ONE_BASE_MODEL: Final = Rule(
    "size(self.models) == 1",
    "an engine serves exactly one base model; right would be one entry, with its adapters in it",
    "models",
)
ADAPTER_IS_NOT_BASE: Final = Rule(
    "!has(self.adapters) || !(self.name in self.adapters)",
    "adapters repeat the base model's name; right would be the adapters' own names",
    "adapters",
)
REACHABLE: Final = Rule(
    "has(self.service) || (has(self.urls) && size(self.urls) > 0)",
    "neither service nor urls; right would be either or both",
)
REPLICAS_ONCE: Final = Rule(
    "!(has(self.replicas) && has(self.replicasFrom))",
    "replicas and replicasFrom exclude each other; right would be one of them",
)
REPLICAS_OF_URLS: Final = Rule(
    "!(has(self.replicas) || has(self.replicasFrom)) || (has(self.urls) && size(self.urls) > 0)",
    "replicas and replicasFrom speak of urls, and there are none; a service's replicas are its ready endpoints",
)
SOME_CAPACITY: Final = Rule(
    "has(self.requestsPerSecond) || has(self.prefillTokensPerSecond) || has(self.decodeTokensPerSecond)"
    " || has(self.maxConcurrency) || has(self.kvCacheTokens)",
    "no figure is given; right would be at least one, such as requestsPerSecond: 12",
)
_RISING = (
    "!has(self.{0}) || (self.{0}.map(p, p.utilizationPercent).isSorted()"
    " && self.{0}.all(p, self.{0}.exists_one(q, q.utilizationPercent == p.utilizationPercent)))"
)
TTFT_RISES: Final = Rule(
    _RISING.format("ttft"), "points must stand by strictly rising utilizationPercent, such as 0, 80, 100", "ttft"
)
TBOT_RISES: Final = Rule(
    _RISING.format("tbot"), "points must stand by strictly rising utilizationPercent, such as 0, 80, 100", "tbot"
)

ONE_KEY: Final = Rule(
    "(has(self.header) ? 1 : 0) + (has(self.field) ? 1 : 0) + (has(self.prefix) ? 1 : 0) == 1",
    "right would be exactly one of header, field and prefix",
)
MODELS_SUM: Final = Rule(
    "!has(self.models) || self.models.map(m, m.percent).sum() <= 100",
    "the models' percent sum to more than 100",
    "models",
)
PRIORITIES_SUM: Final = Rule(
    "!has(self.priorities) || self.priorities.map(p, p.percent).sum() <= 100",
    "the priorities' percent sum to more than 100",
    "priorities",
)
BUDGET_FALLS: Final = Rule(
    "!has(self.idlePercent) || !has(self.saturatedPercent) || self.idlePercent >= self.saturatedPercent",
    "saturatedPercent is above idlePercent; right would be fewer retries when engines are full",
    "saturatedPercent",
)
DISTINCT_PRIORITIES: Final = Rule(
    "!has(self.priorities) || self.priorities.all(p, self.priorities.exists_one(q, q.value == p.value))",
    "two priorities have the same value; right would be a value of its own for each",
    "priorities",
)
HOLD_BEFORE_DEGRADE: Final = Rule(
    "!has(self.hold) || !has(self.degrade) || duration(self.hold) <= duration(self.degrade)",
    "hold is longer than degrade; right would be hold <= degrade",
    "hold",
)
EJECTION_GROWS: Final = Rule(
    "!has(self.base) || !has(self.max) || duration(self.base) <= duration(self.max)",
    "base is longer than max; right would be base <= max",
    "base",
)
_NO_PRIORITIES = (
    "!has(self.protection) || !has(self.protection.shedding) || !has(self.protection.shedding.priorities)"
    " || size(self.protection.shedding.priorities) == 0"
)
KNOWN_PRIORITIES: Final = Rule(
    "self.frontends.all(f, !has(f.demand) || !has(f.demand.priorities) || f.demand.priorities.all(p,"
    f" ({_NO_PRIORITIES}) ? p.name == 'default'"
    " : self.protection.shedding.priorities.exists(q, q.name == p.name)))",
    "demand.priorities names a priority that protection.shedding doesn't have",
    "frontends",
)

RULES: Final[dict[type, tuple[Rule, ...]]] = {
    InferenceEngine: (SHORT_NAME,),
    InferenceEngineSpec: (ONE_BASE_MODEL,),
    ServedModel: (ADAPTER_IS_NOT_BASE,),
    Endpoints: (REACHABLE, REPLICAS_ONCE, REPLICAS_OF_URLS),
    PerReplica: (SOME_CAPACITY,),
    Profile: (TTFT_RISES, TBOT_RISES),
    RoutingPolicy: (SHORT_NAME,),
    RoutingPolicySpec: (KNOWN_PRIORITIES,),
    AffinityKey: (ONE_KEY,),
    Demand: (MODELS_SUM, PRIORITIES_SUM),
    RetryBudget: (BUDGET_FALLS,),
    Shedding: (DISTINCT_PRIORITIES,),
    Staleness: (HOLD_BEFORE_DEGRADE,),
    Ejection: (EJECTION_GROWS,),
}
