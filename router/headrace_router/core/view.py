"""The tables in force, merged by model and prepared for picking.

On the routing-weight path: built by build_view.py where a table is read (off the request path), then swapped in as one
reference by ``Selector.install``. Requests in flight are untouched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from headrace_api.names import prompt_class_labels
from headrace_api.table import ModelRoutes, RoutingTable, TablePriority
from headrace_router.core.admission import WaitQueue
from headrace_router.core.affinity import AffinityRules
from headrace_router.core.budget import RetryBudget
from headrace_router.core.routes import ClassView, EngineView
from headrace_router.core.slots import SlotOrders
from headrace_router.core.state import Pool
from headrace_router.core.states import ALONE, States

# Ids and their weights.
Signature = tuple[tuple[str, ...], tuple[float, ...]]


class PolicyView:
    """One policy's table and what of it outlives a swap: its retry budget and its queue.

    sheds: it sheds anything. pools: of the models that it rules. body_limit: bytes that a request's may have; the other
    …_limit: the table's timeouts, in seconds, 0 for none.
    """

    __slots__ = (
        "_lowest",
        "_priorities",
        "affinity",
        "body_fields",
        "body_limit",
        "budget",
        "connect_limit",
        "first_byte_limit",
        "idle_limit",
        "key",
        "pools",
        "queue",
        "revision",
        "send_limit",
        "sheds",
        "states",
        "table",
        "unary_limit",
    )

    def __init__(self, table: RoutingTable, previous: PolicyView | None, states: States = ALONE) -> None:
        self.table = table
        self.body_limit = table.limits.body
        self.connect_limit = table.timeouts.connect
        self.first_byte_limit = table.timeouts.first_byte
        self.idle_limit = table.timeouts.idle
        self.send_limit = table.timeouts.send
        self.unary_limit = table.timeouts.unary
        self.states = states
        self.key = f"{table.policy_namespace}/{table.policy}"
        self.revision = str(table.identity.revision)
        self.budget: RetryBudget = previous.budget if previous is not None else RetryBudget()
        self.queue: WaitQueue = previous.queue if previous is not None else states.queue(self.key)
        self.sheds = any(shed.share > 0 for model in table.models for routes in model.classes for shed in routes.shed)
        self.pools: tuple[Pool, ...] = ()
        self.affinity = AffinityRules(table.affinity)
        self.body_fields = self.affinity.fields
        self._priorities = {priority.name: priority for priority in table.priorities}
        self._lowest = min(table.priorities, key=lambda priority: priority.value)

    def priority(self, name: str | None) -> TablePriority:
        """The priority of that name; the lowest where none or an unknown one is named."""
        return self._priorities.get(name or "", self._lowest)

    def slack(self) -> float:
        """The room that this process sees on the policy's engines, 1 (idle) to 0; 1 where an engine has no limit."""
        limit = sum(pool.limit for pool in self.pools)
        if not limit or not all(pool.limit for pool in self.pools):
            return 1.0
        return max(0.0, 1.0 - sum(pool.in_flight for pool in self.pools) / limit)

    def configure(self) -> None:
        """Called at the swap: figures of this table on the state that stays."""
        table = self.table
        retry = table.retry
        floor = retry.min_per_second / (table.routers * self.states.processes)
        self.budget.configure(retry.percent, floor, retry.saturated_percent)
        self.queue.configure(table.queue.max, table.queue.deadline)


class ModelView:
    """One served name: its policy, its prompt classes, and the pool of engines that may serve it."""

    __slots__ = ("bytes_per_token", "class_labels", "classes", "edges", "name", "policy", "pool")

    def __init__(
        self,
        model: ModelRoutes,
        policy: PolicyView,
        classes: tuple[ClassView, ...],
        pool: Pool,
    ) -> None:
        self.name = model.model
        self.policy = policy
        self.classes = classes
        self.edges = policy.table.class_edges if len(classes) > 1 else ()
        self.class_labels = prompt_class_labels(self.edges)
        self.bytes_per_token = model.bytes_per_token
        self.pool = pool

    def prompt_class(self, tokens: float) -> int:
        """Index of the prompt class of about ``tokens`` input tokens; an edge belongs to the class above it."""
        return bisect_right(self.edges, tokens) if self.edges else 0

    def class_of(self, body_bytes: int) -> int:
        """Index of the prompt class of a body of that size."""
        return self.prompt_class(body_bytes / self.bytes_per_token)


class TableView:
    """Everything a selection reads. conflicts: words on what one table holds that another already rules."""

    __slots__ = ("conflicts", "engines", "models", "orders", "phase", "policies", "states")

    def __init__(
        self,
        policies: tuple[PolicyView, ...],
        models: Mapping[str, ModelView],
        engines: Mapping[str, EngineView],
        orders: dict[Signature, SlotOrders],
        conflicts: tuple[str, ...],
        phase: float,
        states: States,
    ) -> None:
        self.states = states
        self.policies = policies
        self.models = models
        self.engines = engines
        self.orders = orders
        self.conflicts = conflicts
        self.phase = phase

    def policy_for(self, model: str) -> PolicyView | None:
        """The policy that rules a model's requests; None where no table knows the model."""
        found = self.models.get(model)
        return None if found is None else found.policy
