"""HAS-01: every router process maps keys alike."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

SCRIPT = """
import json, sys
from support.router_core import facts, make_selector, make_table
from headrace_router.core.selection import Pick
names = json.loads(sys.argv[1])
weights = {"a": 5000, "b": 3000, "c": 2000}
replicas = {"x": 1, "y": 2, "z": 3}
engines = [{"id": f"ns/{n}", "urls": [f"http://{n}-{r}" for r in set(replicas)]} for n in set(names)]
table = make_table({name: weights[name] for name in names}, engines=engines)
selector = make_selector(table)
found = []
for number in range(1000):
    pick = selector.pick(facts(b"s%d" % number), 0.0)
    found.append((pick.engine, pick.url))
    pick.release()
print(json.dumps(found))
"""


def mapped(names: Sequence[str], seed: str, path: list[str]) -> list[list[str]]:
    """The picks of 1,000 keys in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(names)],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path)},
        capture_output=True,
        check=True,
        timeout=120,
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_processes_and_orders_agree() -> None:
    """HAS-01: two hash seeds, three orders of the engines, sets and dicts on the way: one mapping of 1,000 keys.

    https://github.com/suitenumerique/meet/pull/148 https://github.com/vllm-project/vllm/pull/17088
    """
    path = [entry for entry in sys.path if entry]
    first = mapped("abc", "0", path)
    assert mapped("cba", "1", path) == first
    assert mapped("bca", "4242", path) == first
    assert len({engine for engine, _ in first}) == 3
    assert len({url for _, url in first}) == 9
