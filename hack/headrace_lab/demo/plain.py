"""Plain lines for pipes, logs and CI: one every few seconds, and one for each thing that happens.

Off every path. Each line is written whole and flushed at once, so that a log that is followed shows progress; nothing
is said twice.
"""

from __future__ import annotations

from typing import TextIO

from headrace_lab.demo.frame import Frame, causes_text, milliseconds, moves_text, percent

EVERY = 3.0  # seconds between two lines of progress


class PlainScreen:
    """Writes to a text stream; never more than a line at a time, flushed at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next = 0.0
        self._notes = self._events = 0
        self._changes: set[str] = set()

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def say(self, text: str) -> None:
        """A line before or after the run."""
        print(text, file=self._out, flush=True)

    def show(self, frame: Frame) -> None:
        """What is new in the frame."""
        for at, text in frame.notes[self._notes :]:
            self.say(f"[{at:5.1f} s] ** {text}")
        self._notes = len(frame.notes)
        for event in frame.events[self._events :]:
            self.say(f"[{event.at:5.1f} s] the operator says {event.reason}: {event.message}")
        self._events = len(frame.events)
        for change in frame.changes:
            if change.text not in self._changes:
                self._changes.add(change.text)
                why = causes_text(change)
                self.say(
                    f"[{change.at:5.1f} s] -> revision {change.revision}: {moves_text(change)}{why and f' ({why})'}"
                )
        if frame.now >= self._next:
            self._next = frame.now + EVERY
            self.say(progress(frame))


def progress(frame: Frame) -> str:
    """One line: instant, phase, load, latency, what was refused or lost, the fullest engine."""
    total = frame.total
    fullest = max(frame.utilization.items(), key=lambda item: item[1], default=("", 0.0))
    return (
        f"[{frame.now:5.1f} s] {frame.script.phase(frame.now).name:<8}  {total.per_second:4.1f} requests/s,"
        f" {frame.in_flight} in flight  TTFT p50 {milliseconds(total.ttft_p50)}, p95 {milliseconds(total.ttft_p95)}"
        f"  shed {total.shed}, failed {total.failed}, lost needlessly {total.lost}"
        f"  fullest: {fullest[0]} {percent(fullest[1])}"
    )
