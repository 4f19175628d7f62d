"""What machine this is, which core does what, and how busy it was: without it no figure can be read."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from bench.router.processes import BenchFailed


class Machine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Facts of the machine at the start of a run. load: runnable processes, mean of 1 and 5 minutes before."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    governor: str
    virtual: bool
    load_1: float
    load_5: float
    proxy_core: int
    load_cores: tuple[int, ...]


def machine() -> Machine:
    """Read them.

    Raises:
        BenchFailed: there is only one core, so that load and proxy can't be kept apart.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchFailed("one core is not enough: the proxy has one of its own, load and engines have another")
    load = os.getloadavg()
    return Machine(
        cpu=cpu_name(_read("/proc/cpuinfo")),
        cores=len(cores),
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        kernel=platform.release(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "none shown",
        virtual=" hypervisor" in _read("/proc/cpuinfo"),
        load_1=round(load[0], 2),
        load_5=round(load[1], 2),
        proxy_core=cores[0],
        load_cores=tuple(cores[1:3]),
    )


def cpu_name(cpuinfo: str) -> str:
    """The model's name out of /proc/cpuinfo, with its family and model numbers where the name says little."""
    facts: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    name = facts.get("model name", "unknown")
    return f"{name} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
