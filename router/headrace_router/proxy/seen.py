"""One request as an access log and traces see it; made only where one of them is on.

Beside the request path. Must not change what a request meets.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from headrace_router.http1.paths import Route
from headrace_router.proxy.answer import Answer
from headrace_router.telemetry.accounting import Account

if TYPE_CHECKING:
    from headrace_router.telemetry.access_log import AccessLog, Entry
    from headrace_router.telemetry.traces import RequestTrace


class Seen:
    """See the module. Either may be missing."""

    __slots__ = ("_code", "_entry", "_log", "trace")

    def __init__(self, log: AccessLog | None, entry: Entry | None, trace: RequestTrace | None) -> None:
        self._log = log
        self._entry = entry
        self._code: str | None = None
        self.trace = trace

    def routed(self, route: Route) -> None:
        """The path is one that passes."""
        if self.trace is not None:
            self.trace.route(route.path)

    def counted(self, account: Account) -> None:
        """It has an account."""
        if self._entry is not None:
            self._entry.account = account
        account.trace = self.trace

    def refused(self, code: str) -> None:
        """The router answers itself."""
        self._code = code

    def ended(self, answer: Answer) -> None:
        """It is over."""
        if self._entry is not None and self._log is not None:
            self._entry.code = self._code
            self._entry.ended(answer.status, complete=answer.complete, at=monotonic())
            self._log.write(self._entry)
        if self.trace is not None:
            self.trace.end(answer.status, self._code, answer.complete)
