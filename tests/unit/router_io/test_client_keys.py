"""Who has a key gets in, and nobody else, whatever the file holds."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_router.http1.request_head import RequestHead, parse_request_head
from headrace_router.listener.keys import ClientKeys
from headrace_router.mounted import Unusable
from headrace_router.proxy.refusals import Refusal
from support.certificates import MountedSecret

KEY, OTHER = "hr-0123456789abcdef", "hr-fedcba9876543210"


def line(name: str, key: str) -> str:
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()}\n"


def head(*lines: tuple[str, str]) -> RequestHead:
    stated = "".join(f"{name}: {value}\r\n" for name, value in lines)
    found = parse_request_head(f"POST / HTTP/1.1\r\nHost: r\r\n{stated}\r\n".encode("latin-1"))
    assert isinstance(found, RequestHead)
    return found


def asked(keys: ClientKeys, *lines: tuple[str, str]) -> str | int:
    """The key's name, or the status of the refusal."""
    verdict = keys.who(head(*lines))
    return verdict.status if isinstance(verdict, Refusal) else verdict


@pytest.fixture
def keys(tmp_path: Path) -> ClientKeys:
    path = tmp_path / "keys"
    path.write_text("# team keys\n\n" + line("alice", KEY) + "  " + line("bob@ci", OTHER).strip() + "  # old\n")
    made = ClientKeys(path)
    assert made.check()
    return made


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([("Authorization", f"Bearer {KEY}")], "alice"),
        ([("authorization", f"bearer  {OTHER} ")], "bob@ci"),
        ([("x-api-key", KEY)], "alice"),
        ([("Authorization", f"Bearer {KEY}"), ("x-api-key", KEY)], "alice"),
        ([], 401),
        ([("Authorization", f"Bearer {KEY}x")], 401),
        ([("Authorization", f"Bearer {KEY[:-1]}")], 401),
        ([("Authorization", f"Bearer {KEY.upper()}")], 401),
        ([("Authorization", KEY)], 401),
        ([("Authorization", "Bearer ")], 401),
        ([("Authorization", "Bearer")], 401),
        ([("Authorization", f"Basic {KEY}")], 401),
        ([("Authorization", f"Bearer {KEY}, Bearer {OTHER}")], 401),
        ([("x-api-key", f"Bearer {KEY}")], 401),
        ([("x-api-key", "é" * 10)], 401),
        ([("x-api-key", "k" * 10_000)], 401),
        # Which of them counts would be a guess.
        ([("Authorization", f"Bearer {KEY}"), ("x-api-key", OTHER)], 401),
        ([("x-api-key", KEY), ("x-api-key", OTHER)], 401),
        ([("x-api-key", KEY), ("x-api-key", OTHER)], 401),
        ([("x_api_key", KEY)], 401),
        ([("Authorization", "Basic eDp5"), ("x-api-key", KEY)], 401),
        # A hash is no key.
        ([("x-api-key", hashlib.sha256(KEY.encode()).hexdigest())], 401),
    ],
)
def test_who(keys: ClientKeys, lines: Sequence[tuple[str, str]], verdict: str | int) -> None:
    assert asked(keys, *lines) == verdict


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """What was compared in constant time, in order."""
    pairs: list[tuple[bytes, bytes]] = []

    def stand_in(one: bytes, other: bytes) -> bool:
        pairs.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("headrace_router.listener.keys.compare_digest", stand_in)
    return pairs


def test_keys_are_compared_in_constant_time(keys: ClientKeys, compared: list[tuple[bytes, bytes]]) -> None:
    """How long a refusal takes must not tell how much of a key was right."""
    assert asked(keys, ("x-api-key", KEY)) == "alice"
    assert compared == [(digest(KEY), digest(KEY))]
    compared.clear()
    # Two that are shown: as they are, for none of them is a secret of this side.
    assert asked(keys, ("Authorization", f"Bearer {KEY}"), ("x-api-key", OTHER)) == 401
    assert compared == [(KEY.encode(), OTHER.encode())]


def test_what_that_comparison_says_counts(keys: ClientKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_router.listener.keys.compare_digest", lambda *_: False)
    assert asked(keys, ("x-api-key", KEY)) == 401


def test_a_refusal_says_how_and_shows_nothing(keys: ClientKeys) -> None:
    refusal = keys.who(head(("x-api-key", "canary-1")))
    assert isinstance(refusal, Refusal)
    shown = refusal.body(anthropic=True) + refusal.body(anthropic=False) + refusal.lines()
    assert b"canary-1" not in shown
    assert b'WWW-Authenticate: Bearer error="invalid_token"\r\n' in refusal.lines()
    assert b'"authentication_error"' in refusal.body(anthropic=True)
    assert b"x-should-retry: false\r\n" in refusal.lines()


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=40))
def test_only_the_very_key(text: str) -> None:
    keys = ClientKeys(Path("unused"))
    keys._names = keys._parse({"unused": line("a", KEY).encode()})
    assert asked(keys, ("x-api-key", text)) == ("a" if text == KEY else 401)


BROKEN = {
    "a key in the clear": f"alice {KEY}\n",
    "half a hash": line("alice", KEY)[:-10],
    "three words": line("alice", KEY).strip() + " more\n",
    "no name that a log should hold": line("al\u202eice", KEY),
    "name with a quote": line('a"b', KEY),
    "nothing": "",
    "comments alone": "# all gone\n",
    "another hash": "alice sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709\n",
    "no text": "\x00\xff\xfe",
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_content_keeps_the_last_keys(case: str, tmp_path: Path) -> None:
    """REL-02 https://github.com/vllm-project/production-stack/issues/659: broken, then the same bytes as before."""
    path = tmp_path / "keys"
    path.write_text(line("alice", KEY))
    keys = ClientKeys(path)
    keys.check()
    path.write_text(BROKEN[case], encoding="latin-1", errors="replace")

    with pytest.raises(Unusable) as told:
        keys.check()
    assert not keys.check(), "it is said once"
    assert keys.error == str(told.value)
    assert KEY not in keys.error
    assert str(path) in keys.error
    assert asked(keys, ("x-api-key", KEY)) == "alice"

    path.write_text(line("alice", KEY))
    keys.check()
    assert keys.error is None


def test_missing_at_first_nobody_gets_in_and_later_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys = ClientKeys(path)
    with pytest.raises(Unusable, match="does not exist"):
        keys.check()
    assert asked(keys, ("x-api-key", KEY)) == 503
    assert asked(keys) == 503
    path.write_text(line("alice", KEY))
    assert keys.check()
    assert asked(keys, ("x-api-key", KEY)) == "alice"
    path.unlink()
    with pytest.raises(Unusable):
        keys.check()
    assert asked(keys, ("x-api-key", KEY)) == "alice"


def test_keys_of_a_mounted_secret_rotate(tmp_path: Path) -> None:
    """REL-01 https://github.com/envoyproxy/envoy/issues/3928: the kubelet swaps a link."""
    secret = MountedSecret(tmp_path / "api-keys")
    secret.put(alice=line("x", KEY).split()[1].encode(), team__txt=(line("bob", OTHER) + line("bob", "new")).encode())
    keys = ClientKeys(secret.folder)
    assert keys.check()
    assert not keys.check()
    assert asked(keys, ("x-api-key", KEY)) == "alice", "a hash alone has its file's name"
    assert asked(keys, ("x-api-key", OTHER)) == asked(keys, ("x-api-key", "new")) == "bob"

    secret.put(alice=line("x", "second").split()[1].encode())
    assert keys.check()
    assert asked(keys, ("x-api-key", "second")) == "alice"
    assert asked(keys, ("x-api-key", KEY)) == asked(keys, ("x-api-key", OTHER)) == 401


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(line(f"k{number}", str(number)) for number in range(4)))
    monkeypatch.setattr("headrace_router.listener.keys.MAX_KEYS", 3)
    with pytest.raises(Unusable, match="more than 3 API keys"):
        ClientKeys(path).check()
    monkeypatch.setattr("headrace_router.listener.keys.MAX_FILE", 10)
    with pytest.raises(Unusable, match="larger than 10 bytes"):
        ClientKeys(path).check()
