"""A real Prometheus on loopback, for tests: Debian's, unpacked by hack/cluster/prometheus.py."""

from __future__ import annotations

import asyncio
import json
import os
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
    """The program's path; where none can be had the test fails, or is skipped if HEADRACE_SKIP_E2E=1 asks for that."""
    found = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300)
    if found.returncode == NOT_HERE and os.environ.get("HEADRACE_SKIP_E2E") == "1":
        pytest.skip(f"NOT RUN: no Prometheus: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


class PrometheusProcess:
    """One Prometheus with a folder of its own; it may be started again, paused and killed."""

    def __init__(self, folder: Path, interval: str = "1s") -> None:
        self.folder = folder
        self.interval = interval
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None
        self._pages: dict[str, list[tuple[str, str]]] = {}
        self._jobs: dict[str, list[dict[str, Any]]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def scrape(self, job: str, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Scrape these addresses (host:port) with these labels, also from now on while it runs."""
        # Plain lists: watching files takes inotify instances, of which a machine has few.
        self._jobs[job] = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        self._configure()
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGHUP)

    def pages(self, job: str, pages: Sequence[tuple[str, str]]) -> None:
        """Scrape these pages (address, path), each of which tells its series' own targets; before it starts."""
        self._pages[job] = list(pages)

    def _configure(self) -> None:
        jobs: list[dict[str, Any]] = [
            {"job_name": name, "static_configs": targets} for name, targets in self._jobs.items()
        ]
        jobs += [
            {
                "job_name": f"{name}{number}",
                "honor_labels": True,
                "metrics_path": path,
                "static_configs": [{"targets": [address]}],
            }
            for name, pages in self._pages.items()
            for number, (address, path) in enumerate(pages)
        ]
        general = {"scrape_interval": self.interval, "scrape_timeout": self.interval}
        place = self.folder / "prometheus.yml"
        place.with_suffix(".new").write_text(yaml.safe_dump({"global": general, "scrape_configs": jobs}))
        place.with_suffix(".new").replace(place)

    async def start(self, *, port: int = 0) -> None:
        """Start it and wait until it answers; ``port``: 0 for any."""
        self._configure()
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
