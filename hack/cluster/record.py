"""Which test clusters this machine has, and whose they are: one folder with a record for each.

A record is written before anything else of its cluster is made, so that whatever a killed run left can be found. A
process is named by its id and start time: an id alone may be somebody else's by now.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import cache


@dataclass(frozen=True)
class Process:
    """A process of this machine; ``started`` is in clock ticks since boot, -1 if it never was."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, _started(pid))

    def alive(self) -> bool:
        return self.started >= 0 and _started(self.pid) == self.started


def _started(pid: int) -> int:
    try:
        # The second field is a command in parentheses and may hold anything, spaces and parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return -1 if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass
class Record:
    """A cluster: how it was made and by whom, and where its files are."""

    name: str
    how: str  # "docker": on the machine's Docker; "private": on one of our own
    maker: Process
    owner: Process | None  # None: it stays until somebody takes it down
    data: str = ""  # images and containers of a private Docker
    holder: Process | None = None  # started those namespaces; they end with it
    init: Process | None = None  # first process of a private Docker's namespaces
    beside: str = ""  # the cluster whose private Docker it is on
    ready: bool = False
    boot: str = field(default_factory=_boot)

    @property
    def folder(self) -> Path:
        return home() / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def docker_folder(self) -> Path:
        """Where a private Docker's socket is."""
        return home() / (self.beside or self.name)

    @property
    def node(self) -> str:
        return f"{self.kind_name}-control-plane"

    @property
    def group(self) -> str:
        """The control group of all its containers."""
        return f"/headrace-{self.name}"

    @property
    def kind_name(self) -> str:
        return f"headrace-{self.name}"

    def abandoned(self) -> bool:
        """Whether nobody is left who would take it down, or nothing of it runs."""
        if self.boot != _boot() or (self.init and not self.init.alive()):
            return True
        if not self.ready:
            return not self.maker.alive()
        return self.owner is not None and not self.owner.alive()

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = self.folder / "record.json.part"
        written.write_text(json.dumps(asdict(self)))
        written.rename(self.folder / "record.json")

    def forget(self) -> None:
        """Remove its files, the record last."""
        for entry in self.folder.iterdir():
            if entry.name != "record.json":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(self.folder)


def home() -> Path:
    """Where records and sockets are: the same folder for all of a user's runs; a short path, sockets have a limit."""
    made = Path("/run/headrace-cluster")
    if os.geteuid() != 0:
        made = Path(os.environ.get("XDG_RUNTIME_DIR", tempfile.gettempdir())) / f"headrace-cluster-{os.geteuid()}"
    made.mkdir(parents=True, exist_ok=True, mode=0o700)
    return made


def data_folder(name: str) -> Path:
    """Where a private Docker keeps images and containers: on disk, beside the cache."""
    return cache.folder() / "run" / name


def find(name: str) -> Record | None:
    """The record of cluster ``name``; None if there is none, or none that can be read."""
    try:
        raw = json.loads((home() / name / "record.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    for role in ("maker", "owner", "holder", "init"):
        raw[role] = Process(**raw[role]) if raw[role] else None
    known = {each.name for each in fields(Record)}  # another version's record may hold more
    return Record(**{key: value for key, value in raw.items() if key in known})


def every() -> list[Record]:
    """All clusters of this user."""
    found = (find(entry.name) for entry in sorted(home().iterdir()) if entry.is_dir())
    return [record for record in found if record]
