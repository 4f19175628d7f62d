"""Sends a bounded load to routers: ``python -m headrace_lab.load --to FRONTEND=URL …``; the result is one line of JSON.

It stands where clients stand. Progress goes to standard error, the result to standard output, as the last line of a
Job's log. After SIGTERM nothing more is sent; what is on its way has its time to end.

Exit: 0 no request failed; 1 some did (the result names them); 2 an option is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from itertools import takewhile

import msgspec
import uvloop

from headrace_api.commands import EXIT_DONE, EXIT_INPUT, InputError
from headrace_lab.load.plan import BLOCK_TOKENS, MAX_REQUESTS, Steady, build
from headrace_lab.load.result import LoadResult, result_of
from headrace_lab.replay.client import Replay, ReplayTarget
from headrace_lab.replay.outcome import FAILURES, Outcome
from headrace_lab.workload.requests import INTERACTIVE

EXIT_FAILURES = 1
PROGRESS = 5.0  # seconds between two lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace_lab.load", description="a bounded load for routers")
    parser.add_argument("--to", action="append", required=True, metavar="FRONTEND=URL", help="a front-end's routers")
    parser.add_argument(
        "--rate", action="append", required=True, metavar="[FRONTEND=]R", help="requests/s, of each or of one front-end"
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--duration", type=float, default=60.0, metavar="S", help="seconds of arrivals (%(default)g)")
    parser.add_argument("--requests", type=int, default=MAX_REQUESTS, metavar="N", help="at most so many a front-end")
    parser.add_argument("--input-tokens", type=int, default=1024, metavar="N", help="(%(default)d)")
    parser.add_argument("--output-tokens", type=int, default=128, metavar="N", help="(%(default)d)")
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="conversations a front-end; 0: no keys")
    parser.add_argument("--priority", default=INTERACTIVE, help="(%(default)s)")
    parser.add_argument("--even", action="store_true", help="at equal distances, not by chance")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of chance (%(default)d)")
    return parser


def read(arguments: argparse.Namespace) -> tuple[dict[str, str], Steady]:
    """Addresses by front-end, and the load. Raises InputError naming every option that is wrong."""
    faults: list[str] = []
    urls = {}
    for text in arguments.to:
        name, _, url = text.partition("=")
        if not name or not url.startswith(("http://", "https://")):
            faults.append(f"--to {text}: right would be FRONTEND=http://HOST:PORT")
        urls[name] = url.rstrip("/")
    rates: dict[str, float] = {}
    for text in arguments.rate:
        name, _, number = text.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0 < rate <= 10_000 or (name and name not in urls):
            faults.append(
                f"--rate {text}: right would be requests/s up to 10000, of a front-end named by --to or of all"
            )
        rates |= dict.fromkeys([name] if name else urls, rate)
    faults += [f"--rate: none for {name}" for name in urls if name not in rates]
    bounds = {"duration": 86_400, "requests": MAX_REQUESTS, "input_tokens": 1_000_000, "output_tokens": 100_000}
    for field, largest in bounds.items():
        if not 0 < getattr(arguments, field) <= largest:
            faults.append(f"--{field.replace('_', '-')} {getattr(arguments, field)}: right would be 1 to {largest}")
    if not 0 <= arguments.sessions <= MAX_REQUESTS:
        faults.append(f"--sessions {arguments.sessions}: right would be 0 to {MAX_REQUESTS}")
    if faults:
        raise InputError(faults)
    names = ("duration", "requests", "input_tokens", "output_tokens", "sessions", "even", "seed", "priority")
    return urls, Steady(rates, **{name: getattr(arguments, name) for name in names})


async def _send(urls: dict[str, str], load: Steady, model: str) -> LoadResult:
    outcomes: list[Outcome] = []
    stop = asyncio.Event()
    requests = takewhile(lambda _: not stop.is_set(), build(load))
    replay = Replay(requests, ReplayTarget(urls, model, BLOCK_TOKENS), outcomes.append)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    began = loop.time()
    telling = loop.create_task(_tell(replay, outcomes, began))
    await replay.run(began)
    telling.cancel()
    return result_of(outcomes, list(urls), loop.time() - began)


async def _tell(replay: Replay, outcomes: list[Outcome], began: float) -> None:
    seen = 0
    while True:
        await asyncio.sleep(PROGRESS)
        new, seen = outcomes[seen:], len(outcomes)
        engines = Counter(outcome.engine for outcome in new if outcome.engine)
        shares = ", ".join(f"{name} {number / engines.total():.0%}" for name, number in sorted(engines.items()))
        failed = sum(outcome.result in FAILURES for outcome in outcomes)
        at = asyncio.get_running_loop().time() - began
        line = (
            f"{at:.0f} s: {replay.sent} sent, {failed} failed, {replay.in_flight} in flight; now {shares or 'nothing'}"
        )
        sys.stderr.write(f"{line}\n")


def main() -> int:
    """Send the load; the exit code."""
    arguments = _parser().parse_args()
    try:
        urls, load = read(arguments)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INPUT
    result = uvloop.run(_send(urls, load, arguments.model))
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return EXIT_FAILURES if result.counts.failed or result.counts.not_sent else EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
