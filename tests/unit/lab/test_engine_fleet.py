"""Specs of fleets: what is wrong is named, what is left out is the hardware's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_api.commands import InputError
from headrace_lab.engine.fleet import parse_spec, read_spec, replica_seed
from headrace_lab.engine.hardware import HARDWARE

ENGINE = '{"name": "a", "hardware": "H100x4", "model": "m"}'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "s: Input data was truncated"),
        ("{}", "engines"),
        ('{"engines": []}', "engines"),
        ('{"engines": [{"name": "a"}]}', "hardware"),
        ('{"engines": [' + ENGINE + '], "sped": 2}', "sped"),
        ('{"engines": [' + ENGINE + '], "speed": 0}', "speed"),
        ('{"engines": [' + ENGINE + '], "speed": 1e999}', "out of range"),
        ('{"engines": [' + ENGINE + '], "prefixBlockTokens": 24}', "prefixBlockTokens"),
        ('{"engines": [' + ENGINE + "," + ENGINE + "]}", "'a' stands twice"),
        ('{"engines": [{"name": "a", "hardware": "TPU", "model": "m"}]}', "engines[a].hardware: 'TPU' is unknown"),
        ('{"engines": [' + ENGINE + '], "roundTrips": {"f": {"b": 0.1}}}', "roundTrips.f.b: no such engine"),
        ('{"engines": [' + ENGINE + '], "roundTrips": {"f": {"a": -1}}}', "roundTrips"),
    ],
)
def test_what_is_wrong_is_named(text: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(text.encode(), "s")
    assert all(line.startswith("s: ") for line in caught.value.faults)
    assert fault in str(caught.value)


def test_all_faults_come_in_one_run() -> None:
    text = '{"engines": [{"name": "a", "hardware": "x", "model": "m"}, {"name": "b", "hardware": "y", "model": "m"}]}'
    with pytest.raises(InputError) as caught:
        parse_spec(text.encode(), "s")
    assert len(caught.value.faults) == 2


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_spec(tmp_path / "none.json")


def test_limits_left_out_are_the_hardwares() -> None:
    text = '{"speed": 2, "prefixBlockTokens": 64, "engines": [' + ENGINE + "]}"
    spec = parse_spec(text.encode(), "s")
    config = spec.config(spec.engines[0])
    hardware = HARDWARE["H100x4"]
    assert (config.max_num_seqs, config.kv_cache_tokens) == (hardware.max_num_seqs, hardware.kv_cache_tokens)
    assert config.prefix_block_tokens == 64
    assert config.cost.base == pytest.approx(hardware.base_ms / 2000)


def test_an_engines_own_limits_win() -> None:
    engine = '{"name": "a", "hardware": "H100x4", "model": "m", "speed": 4, "maxNumSeqs": 4000, "kvCacheTokens": 160}'
    with pytest.raises(InputError, match="maxNumSeqs"):
        parse_spec(('{"engines": [' + engine + "]}").encode(), "s")
    spec = parse_spec(('{"speed": 2, "engines": [' + engine.replace("4000", "2048") + "]}").encode(), "s")
    config = spec.config(spec.engines[0])
    assert (config.max_num_seqs, config.kv_cache_tokens, config.max_num_batched_tokens) == (2048, 160, 2048)
    assert config.cost.base == pytest.approx(HARDWARE["H100x4"].base_ms / 4000)


def test_replicas_have_seeds_of_their_own() -> None:
    seeds = {replica_seed(seed, name, index) for seed in (0, 1) for name in ("a", "b") for index in (0, 1)}
    assert len(seeds) == 8
    assert replica_seed(1, "a", 0) == replica_seed(1, "a", 0)
