"""Reading table files whole."""

import os
from pathlib import Path

import pytest

from headrace_router.tables.table_file import MAX_FILE_BYTES, TableFile
from headrace_router.tables.table_source import Content, Missing, Same, Unreadable


def test_a_bare_table_and_a_manifest(tmp_path: Path) -> None:
    bare, manifest = tmp_path / "table.json", tmp_path / "table.yaml"
    bare.write_bytes(b"{}")
    manifest.write_text('kind: ConfigMap\ndata:\n  table.json: |\n    {"a": "é"}\n', encoding="utf-8")
    assert TableFile(bare).read() == Content(b"{}")
    assert TableFile(manifest).read() == Content('{"a": "é"}\n'.encode())


def test_contents_count_not_times_or_sizes(tmp_path: Path) -> None:
    """REL-01 (https://github.com/jimmidyson/configmap-reload/issues/190): equal mtime and size are still noticed."""
    path = tmp_path / "table.json"
    file = TableFile(path)
    path.write_bytes(b"1")
    os.utime(path, ns=(10**18, 10**18))
    assert file.read() == Content(b"1")
    assert file.read() == Same()
    path.write_bytes(b"2")
    os.utime(path, ns=(10**18, 10**18))
    assert file.read() == Content(b"2")


def test_a_file_that_goes_and_comes_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    file = TableFile(path)
    assert isinstance(file.read(), Missing)
    path.write_bytes(b"1")
    assert file.read() == Content(b"1")
    path.unlink()
    assert isinstance(file.read(), Missing)
    path.write_bytes(b"1")
    assert file.read() == Content(b"1")
    assert isinstance(TableFile(path / "below").read(), Missing)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: *x",
        "- 1",
        "data: 3",
        "data: {}",
        "data: {table.json: 3}",
        "data: {table.json: !!python/name:os.system }",
        "\x00",
        "a: 2001-99-99",
        "[" * 20_000,
    ],
    ids=range(10),
)
def test_what_is_no_manifest_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(text)
    result = TableFile(path).read()
    assert isinstance(result, Unreadable)
    assert "table.yaml" in result.reason


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b" " * (MAX_FILE_BYTES + 10))
    assert isinstance(TableFile(path).read(), Unreadable)
