"""The program ``headrace``: commands by entry point, exit codes, messages without tracebacks, completion."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from headrace_api import commands
from headrace_api.commands import Command, EnvironmentFailed, InputError
from headrace_cli import main as program


def command(run: Callable[[argparse.Namespace], int]) -> Command:
    return Command("a test's command", lambda parser: parser.add_argument("-o", choices=["text", "json"]) and None, run)


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    return run


class Point:
    """Stands for an installed entry point."""

    def __init__(self, name: str, found: Command | None) -> None:
        self.name = name
        self.found = found
        self.extras: list[str] = []
        self.dist: SimpleNamespace | None = None

    def load(self) -> Command:
        if self.found is None:
            raise ModuleNotFoundError("No module named 'kopf'", name="kopf")
        return self.found


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(**found: Command | None) -> None:
        points = [Point(name, value) for name, value in found.items()]
        monkeypatch.setattr(program, "entry_points", lambda group: points)

    return put


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (lambda _: 0, commands.EXIT_DONE, ""),
        (lambda _: 1, commands.EXIT_NEGATIVE, ""),
        (
            raising(InputError(["a.yaml:1: first", "a.yaml:2: second"])),
            commands.EXIT_INPUT,
            "a.yaml:1: first\na.yaml:2: second\n",
        ),
        (raising(EnvironmentFailed("port 80 is taken")), commands.EXIT_ENVIRONMENT, "headrace: port 80 is taken\n"),
        (
            raising(ValueError("x")),
            commands.EXIT_ENVIRONMENT,
            "headrace: ValueError: x (HEADRACE_DEBUG=1 shows where)\n",
        ),
        (raising(KeyboardInterrupt()), 130, ""),
    ],
    ids=["done", "negative", "input", "environment", "bug", "ctrl-c"],
)
def test_exit_codes_and_words(
    run: Callable[[argparse.Namespace], int],
    code: int,
    words: str,
    install: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    install(go=command(run))
    assert program.main(["go"]) == code
    assert capsys.readouterr().err == words


def test_a_part_that_is_not_installed_is_not_listed(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(run=None, router=command(lambda _: 0))
    with pytest.raises(SystemExit):
        program.main(["--help"])
    listed = capsys.readouterr().out
    assert "router" in listed
    assert "\n    run" not in listed


def test_a_part_whose_packages_are_missing_is_not_listed_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands import their packages only when they run, so loading one tells nothing of what is installed."""
    absent, here = Point("plan", command(lambda _: 0)), Point("router", command(lambda _: 0))
    requires = ["pytest", 'no-such-package<4,>=3; extra == "operator"', "pytest>=1; extra == 'router'"]
    for point, extra in ((absent, "operator"), (here, "router")):
        point.extras, point.dist = [extra], SimpleNamespace(requires=requires)
    monkeypatch.setattr(program, "entry_points", lambda group: [absent, here])
    with pytest.raises(SystemExit):
        program.main(["--help"])
    listed = capsys.readouterr().out
    assert "router" in listed
    assert "plan" not in listed
    assert program.main(["plan", "-f", "x"]) == commands.EXIT_ENVIRONMENT
    told = capsys.readouterr().err
    assert told == "headrace plan: no-such-package is not installed; right would be headrace[operator]\n"
    assert program.main(["router"]) == commands.EXIT_DONE


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "/proc/x"),
            "headrace: /proc/x: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), "headrace: No space left on device\n"),
        (OSError("no errno"), "headrace: no errno\n"),
    ],
)
def test_an_os_error_names_the_file_and_no_number(
    error: OSError, words: str, install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(go=command(raising(error)))
    assert program.main(["go"]) == commands.EXIT_ENVIRONMENT
    assert capsys.readouterr().err == words


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "written"), [(io.TextIOWrapper, "1 · █\n".encode()), (Terminal, b"1 ? ?\n")], ids=["pipe", "terminal"]
)
def test_a_locale_without_the_signs_is_no_failure(
    stream: type[io.TextIOWrapper], written: bytes, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(go=command(lambda _: print("1 · █") or 0))
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", stream(raw, encoding="ascii"))
    assert program.main(["go"]) == commands.EXIT_DONE
    sys.stdout.flush()
    assert raw.getvalue() == written


def test_a_closed_stdout_is_no_failure(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's >&- closes it, and Python then has None there."""
    install(go=command(lambda _: print(sys.stdout.isatty()) or 0))
    monkeypatch.setattr(sys, "stdout", None)
    assert program.main(["go"]) == commands.EXIT_DONE
    sys.stdout.close()


def test_no_command_is_wrong_input(install: Callable[..., None]) -> None:
    install()
    assert program.main([]) == commands.EXIT_INPUT


def test_commands_come_in_the_order_people_meet_them(install: Callable[..., None]) -> None:
    install(zebra=command(lambda _: 0), demo=command(lambda _: 0), plan=command(lambda _: 0))
    assert [point.name for point in program.commands()] == ["plan", "demo", "zebra"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [("headrace p", "plan"), ("headrace plan -", "--help -h -o"), ("headrace plan -o j", "json")],
)
def test_bash_completes(
    line: str, offered: str, install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(plan=command(lambda _: 0))
    assert program.main(["completion", "bash"]) == 0
    words = line.split(" ")
    asked = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _headrace; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", capsys.readouterr().out + asked], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.strip() == offered


def test_zsh_runs_the_same_script(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    install(plan=command(lambda _: 0))
    program.main(["completion", "zsh"])
    assert "bashcompinit" in capsys.readouterr().out


def test_every_installed_command_is_an_entry_point_of_this_distribution() -> None:
    names = {point.name for point in program.commands() if isinstance(point, EntryPoint)}
    assert names == set(program.ORDER)
