"""What ``headrace router`` takes: every fault of its arguments in one run, each with what would be right."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path

import pytest

from headrace_api.commands import InputError
from headrace_router.cli import limit_arguments
from headrace_router.cli.access_arguments import add_access_arguments, read_access_arguments
from headrace_router.cli.limit_arguments import add_limit_arguments, read_limit_arguments
from headrace_router.cli.router import COMMAND
from headrace_router.listener.limits import Limits
from headrace_router.server.access_files import AccessFiles


def limits(*arguments: str) -> tuple[Limits, list[str]]:
    parser = argparse.ArgumentParser()
    add_limit_arguments(parser)
    faults: list[str] = []
    return read_limit_arguments(parser.parse_args(arguments), faults), faults


def access(*arguments: str) -> tuple[AccessFiles, list[str]]:
    parser = argparse.ArgumentParser()
    add_access_arguments(parser)
    faults: list[str] = []
    return read_access_arguments(parser.parse_args(arguments), faults), faults


def test_defaults_are_those_of_the_listener() -> None:
    assert limits() == (Limits(), [])


def test_bounds() -> None:
    found, faults = limits("--max-head=16Ki", "--body-memory", "2Gi", "--head-timeout", "2.5", "--max-connections=7")
    assert faults == []
    assert (found.head_bytes, found.body_memory, found.head_seconds, found.connections) == (16384, 2**31, 2.5, 7)


def test_help_says_which_bounds_each_process_has() -> None:
    """Who plans a pod's memory by them multiplies them, and no others."""
    parser = argparse.ArgumentParser()
    assert COMMAND.add_arguments is not None
    COMMAND.add_arguments(parser)
    shown = {
        flag: " ".join(lines.split())
        for flag, lines in re.findall(r"^  (--[a-z-]+)(.*(?:\n   .*)*)", parser.format_help(), re.M)
    }
    assert shown.keys() >= {flag.flag for flag in limit_arguments._FLAGS}
    each = {flag for flag, text in shown.items() if "of each process, see --processes" in text}
    assert each == {"--max-connections", "--body-memory"}


def test_every_flag_is_a_bound_of_its_own() -> None:
    named = [flag.field for flag in limit_arguments._FLAGS]
    assert len(set(named)) == len(named)
    # What is left has no flag: nobody was ever in need of another value.
    assert {field.name for field in fields(Limits)} - set(named) == {"pipelined", "lingering"}


@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ("--max-head=0", "BYTES from 1Ki to 64Ki"),
        ("--max-head=128Ki", "BYTES from 1Ki to 64Ki"),
        ("--max-head=16K", "BYTES from"),
        ("--max-head=-1", "BYTES from"),
        ("--max-head=1.5Ki", "BYTES from"),
        ("--max-head=", "BYTES from"),
        ("--max-head=٣Ki", "BYTES from"),
        ("--max-head-lines=101", "N from 8 to 100"),
        ("--max-connections=5Ki", "N from 1 to 10000000"),
        ("--max-connections=99999999999999999999", "N from"),
        ("--head-timeout=0", "S from 1 to 86400"),
        ("--head-timeout=nan", "S from"),
        ("--idle-timeout=inf", "S from"),
        ("--body-timeout=soon", "S from"),
        ("--body-rate=0", "BYTES from 1 to"),
    ],
)
def test_a_bound_that_is_none(argument: str, right: str) -> None:
    _, (fault,) = limits(argument)
    flag, _, text = argument.partition("=")
    assert fault.startswith(f"{flag} {text}: right would be {right}")


def test_files(tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    found, faults = access(f"--tls-cert={cert}", f"--tls-key={key}", f"--api-keys={tmp_path}")
    assert faults == [], "files need not exist yet"
    assert found == AccessFiles((cert, key), None, tmp_path, None)


def test_files_that_make_no_sense(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    _, faults = access(f"--tls-cert={tmp_path}", "--tls-client-ca=ca.pem", f"--credentials-dir={file}")
    assert faults == [
        "--tls-cert and --tls-key: one stands without the other",
        f"--tls-cert {tmp_path}: is a directory; right would be a file",
        f"--credentials-dir {file}: is a file; right would be a directory",
    ]
    assert access("--tls-client-ca=ca.pem")[1] == [
        "--tls-client-ca: has a meaning only beside --tls-cert and --tls-key"
    ]


def test_every_fault_in_one_run() -> None:
    parser = argparse.ArgumentParser()
    assert COMMAND.add_arguments is not None
    COMMAND.add_arguments(parser)
    wrong = ["--metrics=9091", "--listen=here", "--max-head=1", "--tls-key=k", "--grace=-1"]
    with pytest.raises(InputError) as told:
        COMMAND.run(parser.parse_args(wrong))
    text = "\n".join(told.value.faults)
    for flag in ("--metrics", "--listen", "--max-head", "--tls-key", "--grace", "no table"):
        assert flag in text
