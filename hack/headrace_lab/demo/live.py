"""The live view on a terminal: weights, load, latency, the last changes with their causes, and the script's phase.

Off every path. It is drawn from a frame and must fit the terminal as it is: what has no room is left out from the
bottom, the oldest changes first.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from headrace_lab.demo.fleet import ENGINES
from headrace_lab.demo.frame import Frame, causes_text, milliseconds, moves_text, percent

FIXED_LINES = 23  # everything but the last changes and the operator's words
MOST_WHY = 4
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
        self._live.update(render(frame, self._console.height), refresh=True)


def render(frame: Frame, height: int) -> Group:
    """The whole view of a frame, made for a terminal of so many lines."""
    room = max(2, height - FIXED_LINES)
    why = min(MOST_WHY, room // 2, len(frame.why) + len(frame.events))
    return Group(_head(frame), _engines(frame), _frontends(frame), _changes(frame, room - why), _why(frame, why))


def _head(frame: Frame) -> Text:
    duration = frame.script.duration
    filled = round(BAR * min(1.0, max(0.0, frame.now) / duration))
    phase = frame.script.phase(frame.now)
    style = "bold green" if phase.name in ("steady", "calm", "well") else "bold yellow"
    return Text.assemble(
        ("headrace demo ", "bold"),
        f"{max(0.0, frame.now):4.0f} / {duration:.0f} s ",
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
        name = Text.assemble(site.name, (f" ({state})" if state else "", "yellow"))
        load = frame.utilization.get(site.name, 0.0)
        heat = "red" if load > 0.95 else "yellow" if load > 0.8 else ""
        running, waiting = frame.queues.get(site.name, (0, 0))
        queue = Text(f"{running}+{waiting}", "red" if waiting > running else "")
        weights = [percent(frame.weights.get(name, {}).get(site.name, 0.0)) for name in names]
        table.add_row(name, Text(percent(load), heat), queue, *weights)
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


def _changes(frame: Frame, most: int) -> Text:
    text = Text(
        "\nLast changes of the weights, and what caused them", style="italic", no_wrap=True, overflow="ellipsis"
    )
    for change in list(frame.changes)[-most:][::-1]:
        text.append(f"\n{change.at:6.1f} s  r{change.revision}  ", "not italic dim")
        text.append(causes_text(change) or "first", "not italic cyan")
        text.append(f"  {moves_text(change)}", "not italic")
    return text


def _why(frame: Frame, most: int) -> Text:
    events = [f"{event.at:6.1f} s  {event.reason}: {event.message}" for event in reversed(frame.events)]
    text = Text("In the operator's words", style="italic", no_wrap=True, overflow="ellipsis")
    for line in [*events[: most // 2], *frame.why][:most]:
        text.append(f"\n  {line}", "not italic")
    return text
