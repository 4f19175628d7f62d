"""What one request leaves in the JSON access log, which is off by default.

Beside the request path. One line a request, written by JSON's rules so that nothing a client sends can forge a line
(SEC-05). Never holds bodies, credentials or headers other than the request id.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

from aiohttp import web

from headrace_router.http1.paths import Route
from headrace_router.telemetry.accounting import Account


class Entry:
    """One request as it goes."""

    __slots__ = (
        "account",
        "code",
        "complete",
        "method",
        "path",
        "remote",
        "request_id",
        "route",
        "seconds",
        "started",
        "status",
    )

    def __init__(self, request_id: str, request: web.BaseRequest, started: float) -> None:
        self.request_id = request_id
        self.method = request.method
        # Without the query, which may hold a key.
        self.path = request.raw_path.partition("?")[0][:256]
        self.remote = request.remote
        self.started = started
        self.route: Route | None = None
        self.account: Account | None = None
        self.code: str | None = None
        self.status = 0
        self.complete = False
        self.seconds = 0.0

    def ended(self, status: int, *, complete: bool, at: float) -> None:
        """The request ended."""
        self.status = status
        self.complete = complete
        self.seconds = at - self.started


def write_line(entry: Entry) -> None:
    """One JSON line on stdout."""
    account = entry.account
    record = {
        "time": round(time.time(), 3),
        "requestId": entry.request_id,
        "remote": entry.remote,
        "method": entry.method,
        "path": entry.path,
        "status": entry.status,
        "complete": entry.complete,
        "seconds": round(entry.seconds, 6),
        "code": entry.code,
        "model": account.model if account is not None else None,
        "priority": account.priority if account is not None else None,
        "engine": account.engine if account is not None else None,
        "attempts": account.attempts if account is not None else 0,
        "outcome": account.outcome if account is not None else None,
    }
    # Whoever read the log may be gone: no reason to fail requests.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n")
        sys.stdout.flush()
