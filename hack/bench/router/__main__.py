"""`make bench-router`: the router beside other proxies, in one run on this machine. README.md: how, and what not."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import msgspec

from bench.router import docs, ours, profile
from bench.router.install import system_programs, tools
from bench.router.interpreter import interpreter
from bench.router.load import Bench
from bench.router.machine import machine
from bench.router.measurements import MEASUREMENTS
from bench.router.peers import known_peers
from bench.router.processes import BenchFailed, Children
from bench.router.result import Result, read_result, schema
from bench.router.run import Plan, run, say
from bench.router.text import text_of

ROWS = tuple(one.id for one in MEASUREMENTS)
ENDING = (signal.SIGINT, signal.SIGTERM)
MOST_ROUNDS, MOST_SECONDS = 50, 60.0
AGAIN = "HEADRACE_BENCH_AGAIN"  # set where a process was begun anew


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Options; a wrong one ends with 2 and says what would be right."""
    parser = argparse.ArgumentParser(prog="bench-router", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each peer (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a peer in a round (%(default)s)")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before that (%(default)s)")
    parser.add_argument("--only", default="", metavar="PEER,…", help="these peers")
    parser.add_argument("--rows", default="", metavar="ROW,…", help=f"these of {', '.join(ROWS)}")
    parser.add_argument("--also", type=Path, metavar="FOLDER", help="another checkout's router beside, as `other`")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--save", type=Path, metavar="FILE", help="the JSON there, too")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing; show such a JSON")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md in any case")
    parser.add_argument("--no-docs", action="store_true", help="in no case; else a run of all rows and peers writes it")
    parser.add_argument("--schema", action="store_true", help="print the JSON's schema and do nothing else")
    parser.add_argument(
        "--profile",
        action="store_true",
        help=f"where the time of our router's source goes; --rows of {', '.join(profile.LOADS)}",
    )
    parser.add_argument(
        "--dry", action="store_true", help="our code alone, without sockets: best us and bytecodes a request"
    )
    parser.add_argument(
        "--form", choices=("compiled", "source"), default="compiled", help="of --dry (%(default)s, as in images)"
    )
    parser.add_argument("--key", choices=("header", "field", "none"), default="header", help="of --profile and --dry")
    arguments = parser.parse_args(words)
    arguments.only = [name for name in arguments.only.split(",") if name]
    arguments.rows = [name for name in arguments.rows.split(",") if name]
    if unknown := sorted({*arguments.rows} - {*ROWS}):
        parser.error(f"--rows {unknown[0]}: right would be some of {', '.join(ROWS)}")
    peers = {name.partition("-")[0] for name in known_peers()} | {*known_peers()}
    if unknown := sorted({*arguments.only} - peers):
        parser.error(f"--only {unknown[0]}: right would be some of {', '.join(sorted(peers))}")
    if not 1 <= arguments.rounds <= MOST_ROUNDS:
        parser.error(f"--rounds {arguments.rounds}: right would be 1 to {MOST_ROUNDS}")
    if not 0.2 <= arguments.seconds <= MOST_SECONDS or not 0 <= arguments.warmup <= MOST_SECONDS:
        parser.error(f"--seconds and --warmup: right would be up to {MOST_SECONDS:g}")
    return arguments


def measure(arguments: argparse.Namespace) -> Result | str:
    """Install, run, end everything."""
    ours.environment("compiled")  # on all cores, while there is nothing to measure
    facts = machine()
    os.sched_setaffinity(0, facts.load_cores)  # this process, too, stays off the proxies' core
    needed = ["gcc", "wrk"] + [name for name in ("nginx", "haproxy") if not arguments.only or name in arguments.only]
    system_programs(*needed)
    measurements = [one for one in MEASUREMENTS if not arguments.rows or one.id in arguments.rows]
    plan = Plan(
        measurements, known_peers(arguments.also), arguments.only, arguments.rounds, arguments.seconds, arguments.warmup
    )
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, Children(Path(folder)) as children:
        bench = Bench(tools(), children, {facts.proxy_core}, set(facts.load_cores))
        if arguments.profile:
            return profile.profile(bench, arguments.seconds, arguments.rows, arguments.key)
        say(f"{facts.cpu}, {facts.cores} cores, load {facts.load_1:g}")
        return run(bench, plan, facts)


def main() -> int:
    """0: measured, whatever came out; 3: it could not be measured; 130: Ctrl-C."""
    arguments = read_arguments()
    if arguments.schema:
        print(schema().decode(), end="")
        return 0
    if arguments.dry:
        return _dry(arguments)
    for number in ENDING:  # Ctrl-C too: a shell's background job is started with it ignored
        signal.signal(number, _end)
    try:
        result = read_result(arguments.read.read_bytes()) if arguments.read else measure(arguments)
    except (BenchFailed, msgspec.MsgspecError, OSError) as fault:
        print(f"bench-router: {fault}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("bench-router: ended; nothing is left running", file=sys.stderr)
        return 130
    if isinstance(result, str):
        print(result)
        return 0
    data = msgspec.json.format(msgspec.json.encode(result), indent=1)
    if arguments.save:
        arguments.save.write_bytes(data + b"\n")
    print(data.decode() if arguments.output == "json" else text_of(result))
    whole = not (arguments.only or arguments.rows or arguments.read)
    if (whole or arguments.docs) and not arguments.no_docs:
        docs.write(result)
    return 0


def _dry(arguments: argparse.Namespace) -> int:
    """Our code alone, in the form that was asked for: in a new process if this one isn't as routers here run."""
    from headrace_router.telemetry.form import FORM

    if not os.environ.get(AGAIN) and (arguments.form, interpreter()) != (FORM, sys.executable):
        try:
            env = {**os.environ, **ours.environment(arguments.form), AGAIN: "1"}
        except BenchFailed as fault:
            print(f"bench-router: {fault}", file=sys.stderr)
            return 3
        os.execve(interpreter(), [interpreter(), "-m", "bench.router", *sys.argv[1:]], env)
    if arguments.form != FORM:
        print(f"bench-router: the router runs as {FORM}; right would be {arguments.form}", file=sys.stderr)
        return 3
    from bench.router import dry  # needs all of the router

    print(f"form: {FORM}\n")
    print(dry.run(arguments.rows, arguments.key))
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    for number in ENDING:  # once is enough: a second one must not cut short the ending of what was started
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
