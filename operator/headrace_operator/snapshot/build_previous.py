"""What the last tables send where, as fractions of each source's demand; what they refuse is missing from the sum.

On the routing-weight path; pure. The movement price and the deadband are judged against it. When the prompt classes
have changed since, a class takes the weights that its middle length had in the old ones, so that nothing moves for the
edges' sake; what is no longer told apart takes the mean of the old classes (terciles: each had as many requests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace_api.table import WEIGHT_TOTAL, ClassRoutes, ModelRoutes, RoutingTable
from headrace_operator.snapshot.build_demand import class_of, middle_of_class
from headrace_operator.snapshot.model import PreviousRoute, SourceDemand


def table_order(table: RoutingTable) -> tuple[str, str, str, int, int]:
    """Tables by policy and front-end, the latest of one pair last."""
    return (
        table.policy_namespace,
        table.policy,
        table.frontend,
        table.identity.term,
        table.identity.revision,
    )


def previous_routes(
    tables: Iterable[RoutingTable], demand: Iterable[SourceDemand], edges: Sequence[int]
) -> tuple[PreviousRoute, ...]:
    """Previous weights of the sources that exist now, sorted; of two tables of one pair the later counts."""
    latest = {
        (f"{table.policy_namespace}/{table.policy}", table.frontend): table for table in sorted(tables, key=table_order)
    }
    sources = tuple(demand)
    split = {source.key[:3] for source in sources if source.prompt_class > 0}
    found: list[PreviousRoute] = []
    for source in sources:
        table = latest.get((source.policy, source.frontend))
        if table is None:
            continue
        model = next((entry for entry in table.models if entry.model == source.model), None)
        if model is not None:
            told = source.key[:3] in split
            classes = (_old_class(source.prompt_class, edges, table, model),) if told else model.classes
            found.extend(_routes(source, classes))
    return tuple(
        sorted(found, key=lambda route: (route.policy, route.frontend, route.model, route.prompt_class, route.engine))
    )


def _old_class(prompt_class: int, edges: Sequence[int], table: RoutingTable, model: ModelRoutes) -> ClassRoutes:
    same = tuple(edges) == table.class_edges
    found = prompt_class if same else class_of(middle_of_class(prompt_class, edges), table.class_edges)
    return model.classes[min(found, len(model.classes) - 1)]


def _routes(source: SourceDemand, classes: Sequence[ClassRoutes]) -> list[PreviousRoute]:
    """Fractions of the source's whole demand, the mean over these classes; what they refuse is sent nowhere.

    Where they refuse all, routes of weight 0 say that a table stands.
    """
    weights: dict[str, float] = {}
    for entry in classes:
        total = max(WEIGHT_TOTAL, sum(route.weight for route in entry.routes))
        refused = {shed.priority: shed.share for shed in entry.shed}
        routed = 1.0 - sum(share * refused.get(name, 0.0) for name, _, share in source.priorities)
        for route in entry.routes:
            weights[route.engine] = weights.get(route.engine, 0.0) + route.weight / total * routed / len(classes)
    return [
        PreviousRoute(
            policy=source.policy,
            frontend=source.frontend,
            model=source.model,
            prompt_class=source.prompt_class,
            engine=engine,
            weight=weight,
        )
        for engine, weight in weights.items()
        if weight > 0 or not any(weights.values())
    ]
