"""Complaints: one word on each trouble, whoever meets it."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace_operator.publisher.complaints import Complaints


def test_many_threads_complain_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Tables, Events, the heartbeat and other clusters do: a round must not fail of it."""
    caplog.set_level(logging.CRITICAL)
    complaints, over, seen = Complaints(), threading.Event(), threading.Event()

    def complain(mark: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            complaints.about(f"writing {mark}.{number % 97}", number)
            complaints.settled(f"writing {mark}.{number * 7 % 97}")
            if number > 97:
                seen.set()

    threads = [threading.Thread(target=complain, args=(mark,), daemon=True) for mark in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert seen.wait(60)
        for number in range(1000):
            complaints.only("table of ", {"inf/chat fe-a": str(number)})
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
