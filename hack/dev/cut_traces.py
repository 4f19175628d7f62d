"""Cuts the small copies under hack/headrace_lab/data out of the full data sets (see the README there for sources).

Run by a maintainer, never by the demo: ``python hack/dev/cut_traces.py DATA`` where DATA holds
``mooncake/conversation_trace.jsonl``, ``azure_llm_2023/AzureLLMInferenceTrace_conv.csv`` and
``net_latency/azure_rtt_ms_matrix_50regions.csv``. Lines are copied unchanged; only how many and which is chosen here,
so that the copies can be checked against the originals with ``head`` and ``grep``.
"""

from __future__ import annotations

import argparse
import csv
from itertools import islice
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "headrace_lab" / "data"
CONVERSATIONS = 1500
# A calm stretch: counts in 30 s vary no more than chance, so that changes of load in the demo are the script's own.
FIRST_ARRIVAL, ARRIVALS = 2500, 3000
REGIONS = ("East US", "West US 2", "West Europe", "Sweden Central", "Southeast Asia", "Japan East")


def stretch(source: Path, target: Path, first: int, lines: int, *, header: bool) -> None:
    """Copy ``lines`` lines from line ``first`` (0 is the first after the header), with LF line ends."""
    with source.open(encoding="utf-8", newline=None) as full, target.open("w", encoding="utf-8", newline="\n") as cut:
        if header:
            cut.write(next(full))
        cut.writelines(islice(full, first, first + lines))


def submatrix(source: Path, target: Path) -> None:
    """Copy the rows and columns of REGIONS; cells unchanged (milliseconds, the diagonal empty)."""
    with source.open(encoding="utf-8", newline="") as full:
        rows = {row["Source"]: row for row in csv.DictReader(full)}
    with target.open("w", encoding="utf-8", newline="\n") as cut:
        writer = csv.writer(cut, lineterminator="\n")
        writer.writerow(("Source", *REGIONS))
        writer.writerows((name, *(rows[name][other] for other in REGIONS)) for name in REGIONS)


def main() -> None:
    """Cut all three copies."""
    parser = argparse.ArgumentParser(description="Cut the demo's small data copies out of the full data sets.")
    parser.add_argument("data", type=Path, help="folder with mooncake/, azure_llm_2023/ and net_latency/")
    data: Path = parser.parse_args().data
    TARGET.mkdir(exist_ok=True)
    conversations = data / "mooncake" / "conversation_trace.jsonl"
    stretch(conversations, TARGET / "mooncake_conversation_head.jsonl", 0, CONVERSATIONS, header=False)
    arrivals = data / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"
    stretch(arrivals, TARGET / "azure_2023_conv_stretch.csv", FIRST_ARRIVAL, ARRIVALS, header=True)
    submatrix(data / "net_latency" / "azure_rtt_ms_matrix_50regions.csv", TARGET / "azure_round_trips_ms.csv")


if __name__ == "__main__":
    main()
