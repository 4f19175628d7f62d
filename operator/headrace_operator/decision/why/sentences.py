"""Why the weights of a policy are what they are: sentences with numbers, the most telling first.

On the routing-weight path; pure. What limits the system, who goes elsewhere and why not to another engine, which
engines are full, weakened or out, which stay unused. Nothing here decides; everything is read from the solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headrace_api.status import MAX_WHY, MAX_WHY_TEXT, clip
from headrace_operator.decision.why.book import FULL_TOLERANCE, Book, label, short
from headrace_operator.decision.why.reasons import SAME_SECONDS, full_text, route_reason
from headrace_operator.decision.why.text import fitted, latency, listed, percent, plain, plural, rate
from headrace_operator.decision.why.what_if import Relief
from headrace_operator.optimizer.solution import EngineResult
from headrace_operator.snapshot.cut import ids_in
from headrace_operator.snapshot.eligibility import ELSEWHERE
from headrace_operator.snapshot.model import EngineState, PolicyState, SourceKey

UNUSED_SENTENCES: Final = 8
DETOUR_SENTENCES: Final = 8
FULL_SENTENCES: Final = 8


def why(book: Book, policy: PolicyState, relief: Relief | None = None) -> tuple[str, ...]:
    """Sentences for one policy of a component, at most MAX_WHY of MAX_WHY_TEXT characters."""
    parts: list[str] = []
    if book.solution.status == "Failed":
        parts.append(book.solution.message)
    parts += _break_glass(book, policy)
    parts += _shortage(book, policy)
    parts += [relief_text(relief)] if relief else []
    parts += _full(book, policy)
    parts += _detours(book, policy)
    parts += _weakened(book, policy)
    parts += _unused(book, policy)
    parts += _notes(book, policy)
    return bounded(parts)


def bounded(sentences: Sequence[str]) -> tuple[str, ...]:
    """The sentences within the bounds of status; the last one counts those left out."""
    unique = list(dict.fromkeys(clip(sentence, MAX_WHY_TEXT) for sentence in sentences))
    if len(unique) <= MAX_WHY:
        return tuple(unique)
    return (*unique[: MAX_WHY - 1], f"and {len(unique) - MAX_WHY + 1} more; headrace explain shows all")


def _break_glass(book: Book, policy: PolicyState) -> list[str]:
    parts = [policy.message] if policy.message else []
    if policy.conflicts:
        rulers = sorted({ruler for _, _, ruler in policy.conflicts})
        pairs = plural(len(policy.conflicts), "front-end and model pair")
        parts.append(f"{pairs} ruled by {listed(rulers)}, which is older")
    if len(book.result.policies) > 1:
        others = [name for name in book.result.policies if name != policy.id]
        parts.append(f"shares engines with {listed(others)}: solved together")
    return parts


def _shortage(book: Book, policy: PolicyState) -> list[str]:
    """How much is refused, where, and of which priority; and who has no engine at all."""
    stranded = [source for source in book.of_policy(policy.id) if source not in book.routes]
    nowhere = [
        f"no eligible engine for {label(source, book)}: {rate(book.sources[source].demand)} have nowhere to go"
        for source in stranded
    ]
    return nowhere + _refused(book, policy, [key for key in book.of_policy(policy.id) if key in book.routes])


def _refused(book: Book, policy: PolicyState, sources: Sequence[SourceKey]) -> list[str]:
    missing = sum(book.shed(source) for source in sources)
    if missing <= 0:
        return []
    demand = sum(book.sources[source].demand for source in sources)
    by_frontend = _ranked((label(source, book), book.shed(source)) for source in sources)
    places = fitted([f"{plain(amount)} at {name}" for name, amount in by_frontend], 60)
    parts = [f"short of capacity: {plain(missing)} of {rate(demand)} ({percent(missing / demand)}) refused: {places}"]
    by_priority = _ranked(entry for source in sources for entry in book.sources[source].shed)
    if len(policy.spec.protection.shedding.priorities) > 1:
        parts.append("refused by priority: " + ", ".join(f"{name} {plain(amount)}" for name, amount in by_priority))
    return parts


def _ranked(entries: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sums by name, the largest first, without zeros."""
    sums: dict[str, float] = {}
    for name, amount in entries:
        sums[name] = sums.get(name, 0.0) + amount
    return sorted(((name, amount) for name, amount in sums.items() if amount > 0), key=lambda pair: (-pair[1], pair[0]))


def relief_text(relief: Relief | None) -> str:
    """Where one more replica helps most, and what it comes to; empty where nothing is known."""
    if relief is None:
        return ""
    refused = relief.after.refused
    left = (
        "nothing is refused"
        if refused <= 0
        else f"{rate(refused)} are refused instead of {plain(relief.before.refused)}"
    )
    if relief.before.refused <= 0:
        left = f"mean latency {latency(relief.after.latency)} instead of {latency(relief.before.latency)}"
    return f"one more replica helps most at {short(relief.engine)}: then {left}"


def _detours(book: Book, policy: PolicyState) -> list[str]:
    """Traffic that goes past the fastest engine: how much, where, why there and not elsewhere."""
    if not book.priced:
        return []
    found: list[tuple[tuple[float, float], str]] = []
    for source in book.of_policy(policy.id):
        used = book.used(source)
        if not used:
            continue
        fastest = min(book.routes[source], key=lambda route: (route.unloaded, route.engine))
        for route in used:
            extra = route.unloaded - fastest.unloaded
            if extra > SAME_SECONDS:
                farther = max(0.0, route.round_trip - fastest.round_trip)
                sentence = (
                    f"{label(source, book)} sends {rate(route.flow)} to {short(route.engine)} "
                    f"({latency(route.round_trip)} away): {route_reason(book, route)}"
                )
                found.append(((route.flow * farther, route.flow * extra), sentence))
    return _most(found, DETOUR_SENTENCES, "detour")


def _full(book: Book, policy: PolicyState) -> list[str]:
    if not book.priced:
        return []
    reachable = {route.engine for source in book.of_policy(policy.id) for route in book.routes.get(source, [])}
    found: list[tuple[tuple[float, float], str]] = []
    for name in sorted(reachable):
        if not book.full(name):
            continue
        engine = book.engines[name]
        sentence = f"{short(name)} {_how_full(engine)}: {full_text(book, name)}{_worth(book, name)}"
        found.append(((engine.price * engine.mean_work, 0.0), sentence))
    return _most(found, FULL_SENTENCES, "full engine")


def _how_full(engine: EngineResult) -> str:
    """Full, or at or above the load that balancing aims at."""
    if engine.soft >= engine.capacity * (1 - FULL_TOLERANCE):
        return "full"
    return "at target" if engine.load <= engine.soft * (1 + FULL_TOLERANCE) else "above target"


def _worth(book: Book, name: str) -> str:
    """What one more request/s of capacity there is worth, from the engine's price."""
    engine = book.engines[name]
    users = [source for source, routes in book.routes.items() if any(route.engine == name for route in routes)]
    if any(book.sources[source].marginal is None for source in users):
        return "; one more request/s of capacity here is one fewer refused"
    saving = engine.price * engine.mean_work
    if saving <= SAME_SECONDS:
        return ""
    return f"; one more request/s of capacity here saves {latency(saving)} on each request it takes"


def _weakened(book: Book, policy: PolicyState) -> list[str]:
    """Engines with penalties, ramps, trims, or out of service."""
    parts: list[str] = []
    for state in _own_engines(book, policy):
        for word, factor in (
            ("penalised", state.penalty),
            ("ramping up", state.ramp),
            ("trimmed", state.trim),
            ("signals stale", state.staleness),
        ):
            if factor.value != 1.0:
                reason = f": {factor.reason}" if factor.reason else f": {word}"
                parts.append(f"{short(state.id)} x{factor.value:.2g}{reason}")
    return parts + _excluded(book, policy)


def _own_engines(book: Book, policy: PolicyState) -> list[EngineState]:
    eligible = {route.engine for source in book.of_policy(policy.id) for route in book.routes.get(source, [])}
    return [book.states[name] for name in sorted(eligible) if name in book.states]


def _excluded(book: Book, policy: PolicyState) -> list[str]:
    """Engines without a column, by message, with the front-ends concerned.

    Where a policy has engines, those of other models and labels are no news; ``headrace explain`` has them.
    """
    grouped: dict[tuple[str, str], set[str]] = {}
    own = {entry.id for entry in _own_engines(book, policy)}
    out = book.excluded.get(policy.id, [])
    foreign = {pair.engine for pair in out if pair.engine not in own} - {
        pair.engine for pair in out if pair.reason not in ELSEWHERE
    }
    for pair in out:
        if not (own and pair.engine in foreign):
            grouped.setdefault((pair.engine, pair.message), set()).add(label(pair.source, book))
    whole = {label(source, book) for source in book.of_policy(policy.id)}
    parts: list[str] = []
    for (_, message), concerned in sorted(grouped.items()):
        told = concerned == whole or all(name in message for name in concerned) or "doesn't serve" in message
        place = "" if told else f" (for {listed(sorted(concerned))})"
        parts.append(f"{message}{place}")
    return parts


def _unused(book: Book, policy: PolicyState) -> list[str]:
    """Engines left out where one would ask: by a source that goes past its fastest engine, or by everybody.

    Those nearest to being used come first.
    """
    if not book.priced:
        return []
    found: list[tuple[tuple[float, float], str]] = []
    busy = {route.engine for source in book.sources for route in book.used(source)}
    for source in book.of_policy(policy.id):
        used = book.used(source)
        fastest = min((route.unloaded for route in book.routes.get(source, [])), default=0.0)
        detour = any(route.unloaded > fastest + SAME_SECONDS for route in used)
        for route in book.routes.get(source, []):
            if route not in used and used and (detour or route.engine not in busy):
                reason = route_reason(book, route)
                found.append(
                    ((-route.reduced_cost, 0.0), f"{short(route.engine)} unused by {label(source, book)}: {reason}")
                )
    return _most(found, UNUSED_SENTENCES, "unused pair")


def _most(found: list[tuple[tuple[float, float], str]], bound: int, noun: str) -> list[str]:
    """The sentences with the largest figures (the second decides between equals), and how many were left out."""
    ranked = [sentence for _, sentence in sorted(found, key=lambda one: (-one[0][0], -one[0][1], one[1]))]
    if len(ranked) <= bound:
        return ranked
    return [*ranked[:bound], f"and {plural(len(ranked) - bound, noun)} more"]


def _notes(book: Book, policy: PolicyState) -> list[str]:
    """What the snapshot had to assume about this policy's parts."""
    namespace = policy.id.partition("/")[0] + "/"
    mine = {policy.id, *(engine.id for engine in book.snapshot.engines if engine.id.startswith(namespace))}
    return [
        note.removeprefix(f"{policy.id}: ").replace(namespace, "")
        for note in book.snapshot.notes
        if not mine.isdisjoint(ids_in(note))
    ]
