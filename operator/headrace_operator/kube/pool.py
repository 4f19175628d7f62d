"""Many calls at once, within bounds: one that fails loses only itself, a server that is silent is not asked on and on.

On the routing-weight path, in threads of its own, so that one API server's slowness is not another's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from headrace_operator.kube.client import KubeFault, NotLeading

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")


class Pool:
    """Threads for calls of one API server."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False

    def each(self, items: Sequence[Item], deed: Callable[[Item], Result]) -> list[Result | KubeFault]:
        """``deed`` of every item, in their order; a fault stands in place of its result.

        Once a call had no answer, those not begun yet get the same fault: each would take its whole time limit.

        Raises:
            NotLeading: a write was held back, or the pool is closed. Calls that were begun have ended by then, or end
                by their time limits.
        """
        silent: list[KubeFault] = []
        ended = Event()

        def one(item: Item) -> Result | KubeFault | NotLeading:
            if silent:
                return silent[0]
            if ended.is_set():
                return NotLeading("not the leader any more; nothing is written")
            try:
                return deed(item)
            except KubeFault as fault:
                if fault.status == 0:
                    silent.append(fault)
                return fault
            except NotLeading as lost:
                ended.set()
                return lost

        found: list[Result | KubeFault] = []
        for outcome in [one(items[0])] if len(items) == 1 else self._of_all(items, one):
            if isinstance(outcome, NotLeading):
                raise outcome
            found.append(outcome)
        return found

    def _of_all(self, items: Sequence[Item], deed: Callable[[Item], Outcome]) -> list[Outcome]:
        try:
            return list(self._threads.map(deed, items))
        except (RuntimeError, CancelledError):
            if self._closed:
                raise NotLeading("this cluster is not published to any more; nothing is written") from None
            raise

    def close(self) -> None:
        """Begin nothing more; what was begun ends by its time limits."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
