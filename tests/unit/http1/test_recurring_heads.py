"""Heads of one connection after another: what is taken from the last one, what isn't, and what it may cost."""

from __future__ import annotations

import itertools

import pytest

from headrace_router.http1 import recurring
from headrace_router.http1.heads import NOTHING
from headrace_router.http1.request_head import BadHead, RequestHead, RequestHeads
from headrace_router.http1.response_head import ResponseHeads
from support import hostile_http
from support.http1_checks import check_requests, check_responses

FIRST = b"POST /v1/chat/completions HTTP/1.1"
STILL = (b"Host: r", b"Accept: */*", b"Authorization: Bearer s3cr3t", b"X-Forwarded_For: a")


def head(*lines: bytes, first: bytes = FIRST, still: tuple[bytes, ...] = STILL) -> bytes:
    return b"\r\n".join([first, *still, *lines, b"", b""])


def parsed(heads: RequestHeads, raw: bytes) -> RequestHead:
    found = heads.parse(raw)
    assert isinstance(found, RequestHead)
    return found


def test_only_lines_that_changed_are_read() -> None:
    heads = RequestHeads()
    found = [parsed(heads, head(b"Content-Length: %d" % number, b"X-A: a")) for number in range(5)]
    assert [one.before is NOTHING for one in found] == [True, True, False, False, False]
    assert [line.raw for line in found[-1].own] == [b"Content-Length: 4\r\n"]
    assert [line.raw for line in found[-1].behind.lines] == [b"X-A: a\r\n"]
    assert [one.length for one in found] == [0, 1, 2, 3, 4]
    assert found[-1].before is found[-2].before


def test_a_line_that_stands_still_for_long_is_not_read_any_more() -> None:
    """And one that changes in the end is, again: an engine's Date."""
    heads = ResponseHeads()
    counts = []
    for number in range(1_000):
        lines = (b"date: %d" % (number // 400), b"server: s", b"content-length: %d" % number)
        found = heads.parse(head(*lines, first=b"HTTP/1.1 200 OK", still=()), bodiless_request=False)
        assert found.length == number
        assert found.get(b"date") == b"%d" % (number // 400)
        counts.append(len(found.own))
    assert counts.count(1) > 700
    assert counts[-1] == 1


@pytest.mark.parametrize(
    "lines",
    [
        (b"Host: r",),
        (b"Content-Length: 1", b"Content-Length: 1"),
        (b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked",),
        (b"Transfer-Encoding: gzip",),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        (b"Host: a/b", b"Content-Length: 1"),
        (b"Content-Length: 1x",),
        (b"Content-Length: " + b"9" * 16,),
        (b"Content-Length:",),
        (b"Content-Length : 1",),
        (b"Authorization: Bearer b",),
        (b"",),
        (b"", b"Content-Length: 1"),
        (b" folded",),
        (b"Content-Length: 1\n",),
        (b"\rContent-Length: 1",),
        (b"Content-Length: 1\r",),
        (b"Content-Length: 1", b"Connection: close"),
        (b"Content-Length: 1", b"Connection: Accept"),
        (b"Content-Length: 1", b"Expect: 100-continue"),
        (b"Content-Length: 1", b"Upgrade: x"),
        (b"Content-Length: 1", b"X-Headrace-Priority: batch"),
        (b"Content-Length: 1", b"X-Forwarded-For: 10.0.0.1"),
        (b"Content-Length: 1", b"X-A: \xff"),
        (b"Content-Length: 1", b"X-A: \x00"),
        (b"Content-Length: 1", *[b"X-A: b"] * 43),
        (b"Content-Length: 1", *[b"X-A: b"] * 44),
        (b"Content-Length: 1", *[b"X-A: b"] * 95),
        (b"Content-Length: 1", *[b"X-A: b"] * 96),
        (b"Content-Length: 1", b"X-A: " + b"b" * 5_000),
    ],
    ids=lambda lines: b" ".join(lines)[:40].decode("latin-1") or "empty",
)
def test_lines_that_came_before_speak_with_those_between(lines: tuple[bytes, ...]) -> None:
    """Every rule over all lines of a head, and every bound, holds as for a head that is read by itself."""
    usual = [head(b"Content-Length: %d" % number) for number in range(4)]
    check_requests([*usual, head(*lines), *usual])
    check_requests([*usual, *[head(*lines)] * 70, *usual])
    answers = [head(b"content-length: %d" % number, first=b"HTTP/1.1 200 OK") for number in range(4)]
    odd = head(*lines, first=b"HTTP/1.1 200 OK")
    check_responses([(raw, False) for raw in [*answers, odd, *answers]])
    check_responses([(raw, False) for raw in [*answers, *[odd] * 70, *answers]])


@pytest.mark.parametrize("row", hostile_http.HEADS, ids=lambda row: row.name)
def test_nothing_is_forgiven_after_sound_heads(row: hostile_http.Hostile) -> None:
    """Not a byte of what was tried on other parsers (smuggling among it) is read otherwise behind sound requests."""
    for first, count in itertools.product((FIRST, row.raw.partition(b"\r\n")[0]), (1, 4)):
        usual = [head(b"Content-Length: %d" % number, first=first, still=(b"Host: r",)) for number in range(count)]
        check_requests([*usual, row.raw, usual[0], row.raw, row.raw])


@pytest.mark.parametrize("behind", [(), (b"X-A: a",), (b"Accept: */*", b"Accept: */*")], ids=["none", "one", "two"])
def test_lines_that_stood_still_count_only_as_whole_lines(behind: tuple[bytes, ...]) -> None:
    """Wherever bytes are missing or added, and where too few are left for what stands before and behind."""
    usual = [head(b"Content-Length: 100%d" % number, *behind) for number in range(4)]
    short = head(*behind[1:], still=STILL[:2])
    for place in range(len(usual[0])):
        start, end = usual[0][:place], usual[0][place:]
        pieces = [start, end, *[start + end[size:] for size in (1, 2, 3, 16)]]
        pieces += [start + more + end for more in (b"\r\n", b"\n", b"\r", b" ", b"x", b":", b"\x00", b"\xff")]
        for raw in pieces:
            check_requests([*usual, raw])
    check_requests([*[head(b"X-A: %d" % number, *behind, still=STILL[:2]) for number in range(4)], short])


@pytest.mark.parametrize(
    "value", [b"b", b" b", b"\tb", b"b ", b"b\t", b"", b" ", b"b c", b"\xc3\xa4", b"\xff", b"\x7f"]
)
def test_space_around_a_value_is_not_the_value(value: bytes) -> None:
    usual = [head(b"X-A: %d" % number) for number in range(4)]
    check_requests([*usual, head(b"X-A: " + value), head(b"X-A:" + value), *usual])


def test_another_target_or_method_is_never_taken_for_the_last() -> None:
    """Also where a head is too large to be remembered, or remembering rests."""
    raws = [head(b"Content-Length: %d" % number) for number in range(4)]
    raws += [head(b"X-A: " + b"b" * 5_000, first=b"GET /v1/large HTTP/1.1"), raws[0]]
    raws += [head(first=b"GET /v1/%d HTTP/1.1" % number) for number in range(12)]
    raws += [head(b"Content-Length: %d" % number) for number in range(200)]
    accepted = check_requests(raws)
    assert len(accepted) == len(raws)


def test_a_client_whose_heads_always_differ_pays_for_it_a_few_times() -> None:
    heads = RequestHeads()
    built = 0
    before = None
    for number in range(2_000):
        parsed(heads, head(b"Content-Length: 1", first=b"POST /v1/%d HTTP/1.1" % number))
        if heads._pattern.before is not before:
            built += 1
            before = heads._pattern.before
    assert built < 2_000 / 10


def test_large_heads_and_many_lines_are_not_remembered() -> None:
    for raw in (head(b"X-A: " + b"a" * recurring.MAX_BYTES), head(*[b"A: b"] * recurring.MAX_REMEMBERED)):
        heads = RequestHeads()
        for _ in range(4):
            assert parsed(heads, raw).before is NOTHING
        assert heads._pattern._prefix is None
        assert heads._pattern._last is None


def test_what_a_connection_remembers_is_bounded() -> None:
    """Whatever comes between the lines that stand still."""
    heads = RequestHeads()
    for number in range(200):
        parsed(heads, head(b"X-A: %d" % number, b"X-B: " + b"b" * (number * 40), *[b"C: d"] * (number % 60)))
    pattern = heads._pattern
    held = [*pattern.before.lines, *pattern.behind.lines, *[slot.line for slot in pattern._slots]]
    assert sum(len(line.raw) for line in held) <= recurring.MAX_BYTES
    assert len(held) <= recurring.MAX_REMEMBERED


def test_nobody_gets_what_another_connection_remembers() -> None:
    mine, others = RequestHeads(), RequestHeads()
    for number in range(4):
        parsed(mine, head(b"Content-Length: %d" % number))
    found = parsed(others, head(b"Content-Length: 1"))
    assert found.before is NOTHING
    assert not {id(line) for line in mine._pattern.before.lines if line.name == b"authorization"} & {
        id(line) for line in found.lines
    }


def test_the_refusal_says_the_same() -> None:
    heads = RequestHeads()
    for number in range(4):
        parsed(heads, head(b"Content-Length: %d" % number))
    refused = heads.parse(head(b"Content-Length: 5", b"Content-Length: 5"))
    assert isinstance(refused, BadHead)
    assert refused.message == "there is more than one Content-Length header"
