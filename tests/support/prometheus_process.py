"""A real Prometheus on loopback, for tests: Debian's, unpacked by hack/cluster/prometheus.py."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.operator_process import until

PROGRAM = ROOT / "hack" / "cluster" / "prometheus.py"
NOT_HERE = 3


def prometheus_program() -> str:
    """The program's path; the test is skipped, with a reason, where none can be had."""
    found = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300)
    if found.returncode == NOT_HERE:
        pytest.skip(f"no Prometheus: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


class PrometheusProcess:
    """One Prometheus with a folder of its own; it may be started again, paused and killed."""

    def __init__(self, folder: Path, interval: str = "1s") -> None:
        self.folder = folder
        self.interval = interval
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "targets").mkdir(exist_ok=True)

    def scrape(self, job: str, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Scrape these addresses (host:port) with these labels; picked up within a second, also while it runs."""
        entries = [{"targets": [address], "labels": {"job": job, **labels}} for address, labels in targets.items()]
        place = self.folder / "targets" / f"{job}.json"
        place.with_suffix(".new").write_text(json.dumps(entries))
        place.with_suffix(".new").replace(place)

    async def start(self, *, port: int = 0) -> None:
        """Start it and wait until it answers; ``port``: 0 for any."""
        config = {
            "global": {"scrape_interval": self.interval, "scrape_timeout": self.interval},
            "scrape_configs": [
                {
                    "job_name": "files",
                    "file_sd_configs": [{"files": [f"{self.folder}/targets/*.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = port or _free_port()
        self.url = f"http://127.0.0.1:{port}"
        program = await asyncio.to_thread(prometheus_program)
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                program,
                f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await until(lambda: _answers(f"{self.url}/-/ready"), "a Prometheus that is ready")

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill -9, and wait for its end."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(self.url).port or 0

    def query(self, promql: str) -> Sequence[Mapping[str, Any]]:
        """The result of an instant query."""
        form = urllib.parse.urlencode({"query": promql}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", form, timeout=10) as answer:
            result: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
        return result


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
