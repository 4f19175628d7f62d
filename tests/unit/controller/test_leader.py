"""Leader election by a Lease, on a clock of the test's own: who may write, and never two at once."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from headrace_operator.controller.leader import Leader, Timing, steady_seconds
from support.fake_leases import LeaseClient, Leases, Time

TIMING = Timing(lease=15.0, renew=10.0, retry=2.0)


class Candidate:
    def __init__(self, server: Leases, time: Time, name: str = "a") -> None:
        self.client: Any = LeaseClient(server)
        self.told: list[bool] = []
        self.leader = Leader(
            self.client, "ops", name, TIMING, on_change=self.told.append, clock=time.clock(), wall=lambda: time.now
        )


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def server() -> Leases:
    return Leases()


def led(server: Leases, time: Time, name: str = "a") -> Candidate:
    """A candidate that leads."""
    found = Candidate(server, time, name)
    found.leader.step()
    time.now += TIMING.lease
    found.leader.step()
    assert found.leader.valid()
    return found


def test_the_first_waits_in_case_somebody_deleted_a_leaders_lease(server: Leases, time: Time) -> None:
    first = Candidate(server, time)
    first.leader.step()
    time.now += TIMING.lease - 0.1
    first.leader.step()
    assert not first.leader.valid()
    time.now += 0.1
    first.leader.step()
    assert first.leader.valid()
    assert first.leader.term == 1
    assert first.told == [True]
    assert server.lease is not None
    spec = server.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("a", 1, 15)
    assert spec["renewTime"] == spec["acquireTime"] == "1970-01-01T00:16:55.000000Z"


def test_a_standby_takes_over_when_the_holder_is_silent_for_the_whole_lease(server: Leases, time: Time) -> None:
    first = led(server, time)
    standby = Candidate(server, time, "b")
    standby.leader.step()
    time.now += TIMING.lease - 0.1
    standby.leader.step()
    assert not standby.leader.valid()
    assert not first.leader.valid(), "it gives up before others may begin"
    time.now += 0.1
    standby.leader.step()
    assert standby.leader.valid()
    assert standby.leader.term == 2


@pytest.mark.parametrize(("seen", "term"), [(9, 10), (2**31 - 1, 3)])
def test_a_lease_out_of_a_backup_begins_no_earlier_term(server: Leases, time: Time, seen: int, term: int) -> None:
    """The tables are out of the backup too; but routers that run have seen later ones, and take nothing older.

    A count that no Lease can go on from was an edit.
    """
    led(server, time)
    standby = Candidate(server, time, "b")
    assert server.lease is not None
    server.lease["spec"]["leaseTransitions"] = seen
    standby.leader.step()
    server.lease["spec"]["leaseTransitions"] = 2
    for _ in range(20):
        time.now += 2.0
        standby.leader.step()
    assert standby.leader.valid()
    assert standby.leader.term == term


def test_the_time_in_a_lease_is_never_compared_with_ours(server: Leases, time: Time) -> None:
    """A holder whose wall clock is an hour behind is not expired as long as it renews."""
    first = led(server, time)
    standby = Candidate(server, time, "b")
    for _ in range(30):
        time.now += 2.0
        assert server.lease is not None
        first.leader.step()
        server.lease["spec"]["renewTime"] = f"2020-01-01T00:00:{server.version % 60:02d}.000000Z"
        standby.leader.step()
        assert first.leader.valid()
        assert not standby.leader.valid()


def test_renewals_count_from_their_start(server: Leases, time: Time) -> None:
    first = led(server, time)

    def slowly() -> None:
        time.now += 2.0

    began = time.now = time.now + 1.0
    first.client.passing = slowly
    first.leader.step()
    assert time.now == began + 4.0
    time.now = began + TIMING.renew - 0.1
    assert first.leader.valid()
    time.now = began + TIMING.renew
    assert not first.leader.valid()


def test_a_process_that_was_stopped_knows_at_once(server: Leases, time: Time) -> None:
    """After SIGSTOP and SIGCONT nothing is written by one whose Lease somebody took."""
    first, standby = led(server, time), Candidate(server, time, "b")
    standby.leader.step()
    time.now += 60.0
    assert not first.leader.valid(), "although nobody else has taken the Lease yet"
    standby.leader.step()
    assert standby.leader.valid()
    writes = server.writes
    first.leader.step()
    assert server.writes == writes
    assert first.told == [True, False]
    time.now += 60.0
    first.leader.step()
    assert not first.leader.valid(), "a process leads once"


def test_an_api_server_that_is_away_for_long_ends_no_term_that_nobody_took(
    server: Leases, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = led(server, time)
    first.client.down = True
    for _ in range(50):
        time.now += 2.0
        first.leader.step()
    assert not first.leader.valid()
    first.client.down = False
    first.leader.step()
    assert first.leader.valid()
    assert (first.leader.term, first.told) == (1, [True])
    assert "leading again, term 1" in caplog.text


def test_an_api_server_that_is_away_for_a_moment_costs_nothing(server: Leases, time: Time) -> None:
    first = led(server, time)
    first.client.down = True
    for _ in range(4):
        time.now += 2.0
        first.leader.step()
        assert first.leader.valid()
    first.client.down = False
    time.now += 1.0
    first.leader.step()
    time.now += TIMING.renew - 0.1
    assert first.leader.valid()
    assert first.told == [True]


def test_after_an_outage_the_leader_goes_on_before_others_count_it_silent(server: Leases, time: Time) -> None:
    """Nobody could renew meanwhile: a standby that is first to reach the API server again waits as before."""
    first, standby = led(server, time), Candidate(server, time, "b")
    standby.leader.step()
    first.client.down = standby.client.down = True
    for _ in range(50):
        time.now += 2.0
        first.leader.step()
        standby.leader.step()
    first.client.down = standby.client.down = False
    standby.leader.step()
    assert not standby.leader.valid()
    time.now += 2.0
    standby.leader.step()
    first.leader.step()
    assert first.leader.valid()
    assert (first.leader.term, first.told) == (1, [True])
    first.client.down = True
    for _ in range(7):
        time.now += 2.0
        standby.leader.step()
        assert not standby.leader.valid()
    time.now += 4.0
    standby.leader.step()
    assert standby.leader.valid()


def test_a_renewal_whose_answer_was_lost_is_looked_up(server: Leases, time: Time) -> None:
    first = led(server, time)
    first.client.lost = True
    time.now += 2.0
    first.leader.step()
    first.client.lost = False
    time.now += 2.0
    first.leader.step()
    time.now += TIMING.renew - 0.1
    assert first.leader.valid()


def test_an_acquisition_whose_answer_was_lost_is_taken_again_under_a_new_term(server: Leases, time: Time) -> None:
    first = Candidate(server, time)
    first.leader.step()
    time.now += TIMING.lease
    first.client.lost = True
    first.leader.step()
    assert not first.leader.valid()
    first.client.lost = False
    time.now += 2.0
    first.leader.step()
    assert first.leader.valid()
    assert first.leader.term == 2


def test_a_lease_that_somebody_else_holds_ends_the_leading_at_once(
    server: Leases, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    first = led(server, time)
    assert server.lease is not None
    server.put({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "thief"}})
    time.now += 2.0
    first.leader.step()
    assert not first.leader.valid()
    assert "not leading any more: the Lease is held by thief" in caplog.text


def test_a_lease_that_somebody_touched_is_renewed_all_the_same(server: Leases, time: Time) -> None:
    first = led(server, time)
    assert server.lease is not None
    touched = server.put({**server.lease, "metadata": {**server.lease["metadata"], "labels": {"x": "y"}}})
    time.now += 2.0
    first.leader.step()
    time.now += 2.0
    first.leader.step()
    assert server.lease["metadata"]["labels"] == touched["metadata"]["labels"]
    time.now += TIMING.renew - 0.1
    assert first.leader.valid()


def test_a_deleted_lease_ends_the_leading(server: Leases, time: Time) -> None:
    first = led(server, time)
    server.lease = None
    time.now += 2.0
    first.leader.step()
    assert not first.leader.valid()
    assert first.told == [True, False]


def test_given_back_it_is_taken_at_once(server: Leases, time: Time) -> None:
    """Case SHU-05: a rolling update waits for nobody who is gone.

    https://github.com/nolar/kopf/issues/734
    """
    first, standby = led(server, time), Candidate(server, time, "b")
    standby.leader.step()
    first.leader.stop()
    assert not first.leader.valid()
    standby.leader.step()
    assert standby.leader.valid()
    assert standby.leader.term == 2


def test_a_lease_that_is_not_ours_any_more_is_not_given_back(server: Leases, time: Time) -> None:
    first = led(server, time)
    time.now += TIMING.renew
    writes = server.writes
    first.leader.stop()
    assert server.writes == writes


def test_the_term_can_be_raised_above_that_of_tables(server: Leases, time: Time) -> None:
    first = led(server, time)
    assert first.leader.raise_term(8)
    assert first.leader.term == 8
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 8
    assert first.leader.raise_term(3)
    assert first.leader.term == 8
    time.now += TIMING.renew
    assert not first.leader.raise_term(9)
    assert first.leader.term == 8


def test_faults_are_told_once_in_words(server: Leases, time: Time, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = Candidate(server, time)
    first.client.forbidden = True
    for _ in range(3):
        first.leader.step()
    assert caplog.text.count("right would be a role that may get, create and update leases") == 1
    first.client.forbidden = False
    first.leader.step()
    time.now += TIMING.lease
    first.leader.step()
    assert "can be written again" in caplog.text


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        [],
        {"holderIdentity": None},
        {"holderIdentity": "x"},
        {"holderIdentity": ["x"], "renewTime": 7},
        {"holderIdentity": "x", "leaseDurationSeconds": "long", "leaseTransitions": -3},
        {"holderIdentity": "x", "leaseDurationSeconds": None, "leaseTransitions": True},
    ],
    ids=str,
)
def test_a_lease_full_of_nonsense_is_outwaited(server: Leases, time: Time, spec: object) -> None:
    server.put({"metadata": {"name": "headrace-operator"}, "spec": spec})
    first = Candidate(server, time)
    first.leader.step()
    time.now += TIMING.lease
    first.leader.step()
    assert first.leader.valid()
    assert first.leader.term == 1


@pytest.mark.parametrize("transitions", [1, 7])
def test_a_lease_that_was_given_back_is_taken_at_once(server: Leases, time: Time, transitions: int) -> None:
    server.put({"metadata": {}, "spec": {"holderIdentity": "", "leaseTransitions": transitions}})
    first = Candidate(server, time)
    first.leader.step()
    assert first.leader.valid()
    assert first.leader.term == transitions + 1


def test_a_lease_that_was_deleted_and_made_anew_is_another_one(server: Leases, time: Time) -> None:
    """Seen missing twice is not missing all the time: somebody may have led in between, and still be sure of it."""
    late, early = Candidate(server, time, "late"), Candidate(server, time, "early")
    late.leader.step()
    early.leader.step()
    time.now += TIMING.lease
    early.leader.step()
    assert early.leader.valid()
    server.lease = None
    late.leader.step()
    time.now += TIMING.renew - 1
    late.leader.step()
    assert early.leader.valid()
    assert not late.leader.valid()


def test_a_longer_lease_of_another_configuration_is_respected(server: Leases, time: Time) -> None:
    server.put({"metadata": {}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 60, "leaseTransitions": 4}})
    first = Candidate(server, time)
    first.leader.step()
    time.now += 59.0
    first.leader.step()
    assert not first.leader.valid()
    time.now += 1.0
    first.leader.step()
    assert first.leader.term == 5


def test_its_thread_leads_and_gives_back(server: Leases) -> None:
    leading = threading.Event()
    server.put({"metadata": {}, "spec": {"holderIdentity": "", "leaseTransitions": 1}})
    client: Any = LeaseClient(server)
    leader = Leader(client, "ops", "a", TIMING, on_change=lambda now: leading.set() if now else None)
    assert not leader.started
    leader.start()
    assert leading.wait(30)
    assert leader.started
    assert leader.valid()
    leader.stop()
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""
    assert leader.holder in ("a", "")


def test_calls_end_in_time_for_a_second_attempt() -> None:
    connect, read = TIMING.timeout
    assert 2 * (connect + read) <= TIMING.renew
    assert steady_seconds() <= steady_seconds()
