"""kopf against an API server that is not there: the session ends by itself, says why, and leaves nothing running."""

from __future__ import annotations

import threading

import pytest
from kubernetes import client

from headrace_operator.handlers import session as session_module
from headrace_operator.handlers.session import Session, Watched
from support.cluster import await_true


def test_a_session_that_reaches_nobody_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BACKOFFS", (0.01,))
    settings = client.Configuration()
    settings.host = "http://127.0.0.1:1"
    found = Session([Watched("Node", "", "v1", "nodes")], (), lambda: settings, lambda *_: None)
    found.start()
    await_true(lambda: not found.alive, "it gives up", seconds=60)
    assert "127.0.0.1" in found.ended_by
    assert "kopf" not in {thread.name for thread in threading.enumerate()}
