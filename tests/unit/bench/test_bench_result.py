"""The contract's rows out of measurements, and how a result is shown and kept."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest

from bench.router import docs
from bench.router.install import HERE, PYTHON_PEERS, content_key
from bench.router.machine import Machine, cpu_name
from bench.router.measurements import MEASUREMENTS
from bench.router.processes import BenchFailed
from bench.router.result import LINES, Measured, PeerRounds, Result, read_result, rows, schema
from bench.router.text import text_of

CHECKOUT = HERE.parents[2]


def measured(measurement: str, figure: str, **peers: list[float | None]) -> Measured:
    named = {name.replace("_", "-"): PeerRounds(figures={figure: rounds}) for name, rounds in peers.items()}
    return Measured(id=measurement, title=measurement, load=[0.5], peers=named)


def result(*parts: Measured) -> Result:
    machine = Machine(
        cpu="x", cores=2, memory_gib=1.0, kernel="6", governor="none shown", virtual=True, load_1=0.1, load_5=0.1,
        proxy_core=0, load_cores=(1,),
    )  # fmt: skip
    return Result(
        started="2026-01-01T00:00:00Z", commit="abc", rounds=2, seconds=1.0, machine=machine,
        versions={"envoy": "1.40.0"},
        ceiling={"unary2k": 100.0}, measured=list(parts), rows=rows(parts),
    )  # fmt: skip


def test_a_ratio_is_of_one_round_and_the_best_peer_counts() -> None:
    peers: dict[str, list[float | None]] = {"envoy": [10.0, 10.0, 10.0], "sglang": [5.0, 20.0], "vllm": [8.0, 8.0]}
    unary = measured("unary2k", "per_core", ours=[20.0, 40.0, None], **peers)
    by_id = {row.id: row for row in rows([unary])}
    assert list(by_id) == ["unary2k", "unary2k-llm"]
    assert by_id["unary2k"].measured is not None and by_id["unary2k"].measured.median == 3.0
    assert by_id["unary2k"].verdict == "aim"
    assert by_id["unary2k-llm"].measured is not None and by_id["unary2k-llm"].measured.median == (20 / 8 + 40 / 20) / 2
    assert by_id["unary2k-llm"].verdict == "below"


def test_added_time_is_over_direct_and_the_aim_is_not_above_envoy() -> None:
    times = measured("ttft", "p50_ms", direct=[20.0], ours=[20.25], envoy=[20.125])
    row = rows([times])[0]
    assert row.measured is not None and row.measured.median == 0.25
    assert row.beside is not None and row.beside.median == 0.125
    assert (row.verdict, row.note) == ("must", "above Envoy's")


def test_a_peer_that_failed_leaves_the_row_open_and_says_why() -> None:
    peers = {
        "ours": PeerRounds(figures={"cpu_us": [30.0]}),
        "ours-2": PeerRounds(figures={}, fault="the router has no --processes"),
    }
    row = rows([Measured(id="processes", title="", load=[], peers=peers)])[0]
    assert row.verdict == "not measured"
    assert row.note == "the router has no --processes"


def test_every_line_of_the_contract_has_its_measurement_and_peers() -> None:
    by_id = {one.id: one for one in MEASUREMENTS}
    assert len({line.id for line in LINES}) == 13
    for line in LINES:
        assert {line.ours, *([] if line.kind == "plain" else line.against)} <= set(by_id[line.of[0]].peers), line.id


def test_a_result_comes_back_as_it_was_and_fits_the_schema() -> None:
    whole = result(measured("memory", "over_idle_mib", ours=[30.0], envoy=[100.0]))
    data = msgspec.json.encode(whole)
    assert read_result(data) == whole
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.decode(schema()))
    with pytest.raises(msgspec.ValidationError, match="rounds"):
        read_result(data.replace(b'"rounds":2', b'"rounds":"two"'))


def test_the_schema_beside_the_benchmark_is_the_one_of_today() -> None:
    stored = (HERE / "result.schema.json").read_bytes()
    assert stored == schema(), "python -m bench.router --schema > hack/bench/router/result.schema.json"


def test_text_names_faults_and_a_ceiling_that_is_too_low() -> None:
    unary = Measured(
        id="unary2k",
        title="unary",
        load=[7.5],
        peers={
            "ours": PeerRounds(figures={"per_core": [10.0], "rate": [80.0]}),
            "litellm": PeerRounds(figures={}, fault="litellm: no answer"),
        },
    )
    text = text_of(result(unary))
    assert "1.2 x the fastest proxy (ours); less than 2 x" in text
    assert "  litellm: no answer\n" in text
    assert "7.5" in text and "other things ran meanwhile" in text


def test_the_page_keeps_what_is_not_the_benchmarks() -> None:
    page = f"# Benchmarks\nLP\n{docs.BEGIN}\nold\n{docs.END}\nend\n"
    assert docs.replaced(page, "new") == f"# Benchmarks\nLP\n{docs.BEGIN}\nnew\n{docs.END}\nend\n"
    with pytest.raises(BenchFailed, match="no place"):
        docs.replaced("# Benchmarks\n", "new")
    docs.replaced((CHECKOUT / "docs" / "benchmarks.md").read_text(), "new")


def test_page_and_plots_are_written(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"{docs.BEGIN}\n{docs.END}\n")
    whole = result(measured("unary2k", "per_core", ours=[30.0, 31.0], envoy=[10.0, 10.0], vllm=[9.0, 9.0]))
    docs.write(whole, page, tmp_path / "plots")
    assert "| unary 2 KiB, requests/s per core | 2 | 3 | 3.05 (3.00..3.10) | x Envoy |" in page.read_text()
    drawn = ElementTree.fromstring((tmp_path / "plots" / "unary2k.svg").read_text())
    words = {node.text for node in drawn.iter() if node.tag.endswith("text")}
    assert {"ours", "envoy", "vllm", "must 2", "aim 3"} <= words


def test_requirements_name_versions_and_hashes_and_no_address() -> None:
    for peer in PYTHON_PEERS:
        text = (HERE / f"requirements-{peer}.txt").read_text()
        assert re.search(rf"^{peer}(\[\w+\])?==\S+", text, re.M), peer
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index-url" not in text


def test_a_parts_key_changes_with_any_of_its_inputs() -> None:
    assert len({content_key(parts) for parts in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [])}) == 4


def test_cpu_name_of_a_machine_that_says_little() -> None:
    assert cpu_name("model name\t: AMD EPYC\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: other\n") == (
        "AMD EPYC (family 25, model 17)"
    )
    assert cpu_name("") == "unknown (family ?, model ?)"


def test_the_benchmark_is_no_part_of_the_distribution() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    assert not [name for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] if "bench" in name]
