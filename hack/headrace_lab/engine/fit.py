"""Fits step costs from the measured rows in ``../data`` and writes ``hardware.json``; shows how good the fit is.

A tool for people, off every path: ``python -m headrace_lab.engine.fit [--source CSV] [--write]``; a source is the whole
upstream file, whose rows are then cut anew. In a closed loop of n requests one passes its ``out`` steps in out x TPOT,
and each of the n is prefilled once in TTFT + out x TPOT, so

    TPOT = base + per_sequence n + per_context_token n (in + out/2) + per_prompt_token in x TPOT n / (TTFT + out TPOT)

is linear in the four costs; least squares on relative errors. A cost that comes out negative is set to 0 and
the others are fitted again. Rows whose TTFT shows a full KV cache (a queue, not a batch) are left out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from headrace_lab.engine.hardware import Fit, Hardware

ROWS: Final = "silicon_llama70b_vllm_fp8.csv"
COLUMNS: Final = (
    *("id", "backend", "model_path", "system", "precision", "tp_size", "isl", "osl", "concurrency"),
    *("ttft_ms", "tpot_ms", "measured_utc"),
)
QUEUED_TTFT_MS: Final = 6000.0  # 8,192 tokens prefill in under 1 s on each; a TTFT above this is waiting for blocks
MAX_NUM_SEQS: Final = 64  # the largest concurrency measured; beyond it the fit would be a guess

# KV tokens = (0.95 x memory - weights - 2 GB a GPU) / bytes a token: 80 layers x 8 KV heads x 128 x 2 (K, V) x 2 bytes.
# 0.95 is what makes H100x2 hold the 265,000 tokens that its rows with a full cache show (64 clients of 8192/1024: 30
# ran at once by Little's law, 8,704 tokens each). Memory in GB as the driver reports it.
MEMORY_GB: Final = {"h100_sxm": 85.5, "h200_sxm": 150.8, "b200_sxm": 192.3}
WEIGHTS_GB: Final = 70.6
BYTES_PER_TOKEN: Final = 327_680
ACCELERATOR: Final = {"h100_sxm": "H100-80GB", "h200_sxm": "H200-141GB", "b200_sxm": "B200-180GB"}


@dataclass(frozen=True)
class Row:
    """One measured point; times in ms."""

    id: str
    system: str
    tp_size: int
    isl: int
    osl: int
    concurrency: int
    ttft_ms: float
    tpot_ms: float

    @property
    def name(self) -> str:
        """The kind of engine it was measured on, such as H100x4."""
        return f"{self.system.split('_')[0].upper()}x{self.tp_size}"


def cut(lines: Iterable[str]) -> list[dict[str, str]]:
    """The used rows of the upstream CSV (or of its cut) in fixed order, with the columns that a reader needs."""
    wanted = {"model_path": "meta-llama/Llama-3.1-70B", "backend": "vllm", "precision": "fp8"}
    rows = [
        {column: row[column] for column in COLUMNS} | {"measured_utc": row["measured_utc"][:10]}
        for row in csv.DictReader(lines)
        if all(row[column] == value for column, value in wanted.items())
        and row.get("mode", "agg") == "agg"
        and row["tp_size"] in {"2", "4"}
        and row["system"] in MEMORY_GB
    ]
    order = ("tp_size", "isl", "osl", "concurrency")
    return sorted(rows, key=lambda row: (row["system"], *(int(row[column]) for column in order)))


def parsed(rows: Iterable[dict[str, str]]) -> list[Row]:
    """Rows of ``cut`` as numbers."""
    return [
        Row(
            row["id"],
            row["system"],
            int(row["tp_size"]),
            int(row["isl"]),
            int(row["osl"]),
            int(row["concurrency"]),
            float(row["ttft_ms"]),
            float(row["tpot_ms"]),
        )
        for row in rows
    ]


def committed_rows() -> list[Row]:
    """The rows beside ``hardware.json``."""
    text = resources.files("headrace_lab").joinpath("data", ROWS).read_text(encoding="utf-8")
    return parsed(cut(text.splitlines()))


def _terms(row: Row) -> list[float]:
    cycle = row.ttft_ms + row.osl * row.tpot_ms
    n = row.concurrency
    return [1.0, n, row.isl * row.tpot_ms * n / cycle, n * (row.isl + row.osl / 2)]


def fit(rows: Sequence[Row]) -> Hardware:
    """The step cost of one kind of engine; rows of several kinds would be mixed up."""
    used = [row for row in rows if row.ttft_ms < QUEUED_TTFT_MS]
    matrix = np.array([_terms(row) for row in used])
    measured = np.array([row.tpot_ms for row in used])
    free = [0, 1, 2, 3]
    costs = np.zeros(4)
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, free] / measured[:, None], np.ones(len(used)), rcond=None)
        if (found >= 0).all():
            break
        free = [term for term, value in zip(free, found, strict=True) if value >= 0]
    costs[free] = found
    predicted = matrix @ costs
    error = np.abs(predicted - measured) / measured
    spread = float(((measured - measured.mean()) ** 2).sum())
    first = rows[0]
    memory = first.tp_size * (0.95 * MEMORY_GB[first.system] - 2.0) - WEIGHTS_GB
    return Hardware(
        accelerator=ACCELERATOR[first.system],
        count=first.tp_size,
        base_ms=round(float(costs[0]), 4),
        per_sequence_ms=round(float(costs[1]), 5),
        per_prompt_token_ms=round(float(costs[2]), 6),
        per_context_token_ms=round(float(costs[3]), 8),
        max_num_seqs=MAX_NUM_SEQS,
        kv_cache_tokens=int(memory * 1e9 / BYTES_PER_TOKEN) // 1000 * 1000,
        fit=Fit(
            rows=len(used),
            r2=round(1 - float(((predicted - measured) ** 2).sum()) / spread, 4),
            median_error=round(float(np.median(error)), 4),
            max_error=round(float(error.max()), 4),
        ),
    )


def fit_all(rows: Iterable[Row]) -> dict[str, Hardware]:
    """Every kind in the rows, by name."""
    kinds: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.name].append(row)
    return {name: fit(kinds[name]) for name in sorted(kinds)}


def main() -> int:
    """Fit, print a line a kind, and write ``hardware.json`` when asked."""
    parser = argparse.ArgumentParser(prog="python -m headrace_lab.engine.fit", description="fit step costs")
    parser.add_argument("--source", type=Path, help="the upstream CSV; default: the rows cut from it")
    parser.add_argument("--write", action="store_true", help="write hardware.json, and the rows cut from --source")
    arguments = parser.parse_args()
    rows = cut(arguments.source.read_text(encoding="utf-8").splitlines()) if arguments.source else None
    kinds = fit_all(committed_rows() if rows is None else parsed(rows))
    for name, found in kinds.items():
        sys.stdout.write(f"{name}: {msgspec.json.encode(found).decode()}\n")
    if arguments.write:
        data = Path(__file__).parent.parent / "data"
        (data / "hardware.json").write_bytes(msgspec.json.format(msgspec.json.encode(kinds), indent=1) + b"\n")
        if rows is not None:
            with (data / ROWS).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
