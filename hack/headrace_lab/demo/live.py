"""The live view on a terminal: weights, load, latency, the last changes with their causes, and the script's phase.

Off every path. It is drawn from a frame and must fit the terminal as it is: sentences are wrapped, never cut, and what
has no room is left out from the bottom, the oldest changes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import wrap

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from headrace_lab.demo.fleet import ENGINES
from headrace_lab.demo.frame import DEAD, Frame, causes_text, milliseconds, moves_text, percent
from headrace_lab.demo.script import WARM_UP

FIXED_LINES = 23  # everything but the last changes and the operator's words
MOST_WHY = 4
INDENT = 4  # of a sentence's further lines
BAR = 40


class LiveScreen:
    """Redraws in place; what is said before and after the run stays above and below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = RichLive(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line before or after the run."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, frame: Frame) -> None:
        """Draw the frame."""
        self._live.update(render(frame, self._console.width, self._console.height), refresh=True)


def render(frame: Frame, width: int, height: int) -> Group:
    """The whole view of a frame, made for a terminal of so many columns and lines."""
    room = max(2, height - FIXED_LINES)
    why = _fitting(_words(frame, MOST_WHY // 2 if room > MOST_WHY else 0), width, room // 2)
    changes = _fitting(_changes(frame), width, room - len(why))
    return Group(
        _head(frame),
        _engines(frame),
        _frontends(frame),
        _under("\nLast changes of the weights, and what caused them", changes),
        _under("In the operator's words", why),
    )


def _head(frame: Frame) -> Text:
    duration = frame.script.duration
    filled = round(BAR * min(1.0, max(0.0, frame.now) / duration))
    phase = frame.script.phase(frame.now)
    style = "bold green" if phase.name in (WARM_UP, "steady", "calm", "well") else "bold yellow"
    return Text.assemble(
        ("headrace demo ", "bold"),
        f"{min(duration, max(0.0, frame.now)):4.0f} / {duration:.0f} s ",
        ("━" * filled, "cyan"),
        ("━" * (BAR - filled), "dim"),
        "\n",
        (f"{phase.text}\n", style),
        no_wrap=True,
    )


def _engines(frame: Frame) -> Table:
    names = list(frame.frontends)
    title = f"Engines, and what part of each front-end's requests goes there (revision {frame.revision})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("engine", min_width=22)
    for head in ("load", "run+wait", *names):
        table.add_column(head, justify="right")
    for site in ENGINES:
        state = frame.engine_states.get(site.name, "")
        dead = state == DEAD
        label = Text.assemble(site.name, (f" ({state})" if state else "", "bold red" if dead else "yellow"))
        load = frame.utilization.get(site.name, 0.0)
        heat = "red" if load > 0.95 else "yellow" if load > 0.8 else ""
        running, waiting = frame.queues.get(site.name, (0, 0))
        queue = Text("-" if dead else f"{running}+{waiting}", "red" if waiting > running else "")
        weights = [percent(frame.weights.get(name, {}).get(site.name, 0.0)) for name in names]
        table.add_row(label, Text("-") if dead else Text(percent(load), heat), queue, *weights)
    return table


def _frontends(frame: Frame) -> Table:
    table = Table(box=None, pad_edge=False, title="\nWhat clients see", title_justify="left")
    for column in ("front-end", "requests/s", "TTFT p50", "TTFT p95", "done", "shed", "failed", "lost"):
        table.add_column(column, justify="left" if column == "front-end" else "right")
    for name, live in [*frame.frontends.items(), ("all", frame.total)]:
        table.add_row(
            name,
            f"{live.per_second:.1f}",
            milliseconds(live.ttft_p50),
            milliseconds(live.ttft_p95),
            str(live.done),
            str(live.shed),
            str(live.failed),
            Text(str(live.lost), "bold red" if live.lost else ""),
        )
    return table


def _changes(frame: Frame) -> Iterable[tuple[str, str, str]]:
    """Entries, newest first: when, why, what."""
    for change in reversed(frame.changes):
        yield f"{change.at:6.1f} s  r{change.revision}  ", causes_text(change) or "first", f"  {moves_text(change)}"


def _words(frame: Frame, most_events: int) -> Iterable[tuple[str, str, str]]:
    """Entries: a few Events, newest first, then the operator's reasons."""
    for event in list(reversed(frame.events))[:most_events]:
        yield f"{event.at:6.1f} s  ", event.reason, f": {event.message}"
    for line in frame.why[:MOST_WHY]:
        yield "  ", "", line


def _fitting(entries: Iterable[tuple[str, str, str]], width: int, room: int) -> list[Text]:
    """Lines of the entries that have room; only a first one that has not is cut."""
    lines: list[Text] = []
    for head, lead, rest in entries:
        wrapped = _wrapped(head + lead + rest, max(20, width))
        if len(lines) + len(wrapped) > room:
            if lines:
                break
            wrapped = wrapped[: max(1, room)]
            wrapped[-1] = wrapped[-1][: max(20, width) - 2] + " …"
        lines += [Text(line) for line in wrapped]
        first = lines[-len(wrapped)]
        first.stylize("dim", 0, len(head))
        first.stylize("cyan", len(head), len(head) + len(lead))
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a figure stays with its unit."""
    kept = re.sub(r"(?<=\d) (?=(ms|s|requests/s)\b|%|-> )|(?<=->) ", "\u00a0", text)
    lines = wrap(kept, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def _under(title: str, lines: list[Text]) -> Group:
    return Group(Text(title, style="italic", no_wrap=True, overflow="ellipsis"), *lines)
