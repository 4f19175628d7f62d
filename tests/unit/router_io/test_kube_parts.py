"""Parts of what a router asks an API server with: credentials, the operator's Lease, arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headrace_api.commands import InputError
from headrace_router.cli import router as router_command
from headrace_router.cli.table_arguments import add_table_arguments, read_table_arguments
from headrace_router.kube.client import KubeApi
from headrace_router.kube.credentials import Credentials, NoCredentials, in_cluster, stated
from headrace_router.tables import folders
from headrace_router.tables.heartbeat import Heartbeat
from headrace_router.tables.kube_heartbeat import LeaseBeat
from headrace_router.tables.tables_from import TablesFrom

SECRET = "eyJhbGciOiJSUzI1NiJ9.secret.part"
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(SECRET + "\n")
    (tmp_path / "ca.crt").write_text("no certificate")
    return tmp_path


def test_a_pods_own_credentials(account: Path) -> None:
    found = in_cluster(POD, account)
    assert (found.url, found.read_token()) == ("https://10.96.0.1:443", SECRET)
    assert in_cluster(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, account).url == "https://[fd00::1]:443"
    (account / "token").write_text("rotated")
    assert found.read_token() == "rotated"
    with pytest.raises(NoCredentials, match="holds no certificates"):
        found.context(found.read_ca())
    with pytest.raises(NoCredentials, match="this is no pod"):
        in_cluster({}, account)
    (account / "token").unlink()
    with pytest.raises(NoCredentials, match="automountServiceAccountToken"):
        in_cluster(POD, account)
    with pytest.raises(NoCredentials, match="can't be read"):
        found.read_token()


@pytest.mark.parametrize("content", ["", f"{SECRET}\nInjected: x", "a" * 20_000, "tökén", SECRET + "\x00"])
def test_what_is_no_token_is_not_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(NoCredentials, match="holds no token") as told:
        Credentials("https://x", path).read_token()
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("https://10.0.0.1:6443/", True),
        ("http://127.0.0.1:8001", True),
        ("http://localhost:8001", True),
        ("http://[::1]:8001", True),
        ("http://10.0.0.1:8001", False),
        ("ftp://10.0.0.1", False),
        ("https://", False),
        ("https://user:pass@10.0.0.1", False),
        ("https://:pass@10.0.0.1", False),
        ("https://[::1", False),
        ("https://10.0.0.1:65536", False),
        ("10.0.0.1:6443", False),
    ],
)
def test_a_token_never_goes_out_in_the_clear(account: Path, url: str, fits: bool) -> None:
    if fits:
        assert stated(url, account / "token", None).url == url.rstrip("/")
    else:
        with pytest.raises(NoCredentials) as told:
            stated(url, account / "token", None)
        assert "pass" not in str(told.value)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall = 1_800_000_000.0

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beat(clock: Clock) -> LeaseBeat:
    api = KubeApi(Credentials("https://nowhere"))
    return LeaseBeat(api, "ns", clock=lambda: clock.now, wall=lambda: clock.wall, chance=lambda: 0.5)


def test_a_lease_ages_from_when_it_was_seen_to_change(beat: LeaseBeat, clock: Clock) -> None:
    assert (beat.age(), beat.why) == (None, "not read yet")
    beat.take("2027-01-15T07:59:00Z")  # a minute before
    assert (beat.age(), beat.why) == (60.0, None)
    clock.go(5)
    assert beat.age() == 65.0
    beat.take("2027-01-15T06:00:00.5")  # renewed, by a clock that is hours behind
    assert beat.age() == 0.0
    clock.go(7)
    beat.take("2027-01-15T06:00:00.5")
    assert beat.age() == 7.0


def test_a_first_lease_from_the_future_is_fresh_now(beat: LeaseBeat, clock: Clock) -> None:
    beat.take("2099-01-01T00:00:00Z")
    assert beat.age() == 0.0
    clock.go(100)
    assert beat.age() == 100.0


@pytest.mark.parametrize("renewed", ["", "now", "2026-13-01T00:00:00Z", "9" * 100])
def test_what_is_no_time_says_nothing(beat: LeaseBeat, renewed: str) -> None:
    beat.take(renewed)
    assert beat.age() is None
    assert beat.why is not None


def test_what_could_not_be_read_for_a_minute_is_unknown_not_stale(beat: LeaseBeat, clock: Clock) -> None:
    beat.take("2027-01-15T08:00:00Z")
    beat.why = "403"
    clock.go(50)
    assert beat.age() == 50.0
    clock.go(20)
    assert beat.age() is None


def test_of_several_leases_the_oldest_counts(clock: Clock, tmp_path: Path) -> None:
    def made(renewed: str) -> LeaseBeat:
        api = KubeApi(Credentials("https://nowhere"))
        found = LeaseBeat(api, "ns", clock=lambda: clock.now, wall=lambda: clock.wall, chance=lambda: 0.5)
        found.take(renewed)
        return found

    young, old, unknown = made("2027-01-15T07:59:50Z"), made("2027-01-15T07:58:00Z"), made("")
    assert Heartbeat([], [young, old, unknown]).age() == 120.0
    assert Heartbeat([], [young, unknown]).why is not None
    assert Heartbeat([], [young, old]).why is None
    assert Heartbeat([], [unknown]).age() is None


def read(*arguments: str) -> tuple[TablesFrom, list[str]]:
    parser = argparse.ArgumentParser()
    add_table_arguments(parser)
    faults: list[str] = []
    return read_table_arguments(parser.parse_args(arguments), faults), faults


def test_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    tables, faults = read("--configmap", "ns/t", "--table", "a.json", "--api", "http://127.0.0.1:1/")
    assert faults == []
    assert tables == TablesFrom((Path("a.json"),), (("ns", "t"),), None, Credentials("http://127.0.0.1:1"), None)
    tables, faults = read("--configmap", "ns/t", "--fallback-dir", str(tmp_path))
    assert faults == []
    assert tables.api is None
    assert "this is no pod" in str(tables.no_api)
    assert read("--table", "a.json") == (TablesFrom((Path("a.json"),), no_api=tables.no_api), [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no table"),
        (("--configmap", "t"), "NAMESPACE/NAME"),
        (("--configmap", "ns/../secrets"), "NAMESPACE/NAME"),
        (("--configmap", "ns/a?x"), "NAMESPACE/NAME"),
        (("--configmap", "ns/t", "--configmap", "ns/t"), "stands twice"),
        (("--configmap", "ns/t"), "this is no pod"),
        (("--table", "a", "--fallback-dir", "/x"), "--fallback-dir"),
        (("--table", "a", "--api-token", "/x"), "only beside --api"),
        (("--table", "a", "--api", "nowhere"), "no address"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    _, faults = read(*arguments)
    assert len(faults) == 1
    assert told in faults[0]


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    router_command.add_arguments(parser)
    with pytest.raises(InputError, match="no table"):
        router_command.run(parser.parse_args([]))


async def test_a_machine_without_a_watch_left_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's inotify instances are few; the files are then read every second all the same."""
    tried = 0

    def none_left(*_: object, **__: object) -> None:
        nonlocal tried
        tried += 1
        if tried > 2:
            raise KeyboardInterrupt
        raise RuntimeError("Too many open files (os error 24)")

    monkeypatch.setattr(folders, "awatch", none_left)
    monkeypatch.setattr(folders, "LOOK_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        await folders.watch_folders({tmp_path}, lambda: None)
