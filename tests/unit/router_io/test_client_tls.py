"""A certificate for clients that changes while the router runs; what can't be used leaves the last one in force."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from headrace_router.listener.tls import ClientTls
from headrace_router.mounted import Unusable
from support.certificates import Authority, Issued, MountedSecret


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def pairs(authority: Authority) -> tuple[Issued, Issued]:
    return authority.issue("router.example"), authority.issue("router.example")


def made(folder: Path, issued: Issued, client_ca: Path | None = None) -> ClientTls:
    return ClientTls(*issued.write(folder), client_ca, lambda _: None)


def test_a_pair(tmp_path: Path, pairs: tuple[Issued, Issued]) -> None:
    tls = made(tmp_path, pairs[0])
    assert tls.check()
    context = tls.newest()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    assert not tls.check()
    assert tls.newest() is context


def test_a_client_certificate_is_required_where_an_authority_is_given(
    tmp_path: Path, authority: Authority, pairs: tuple[Issued, Issued]
) -> None:
    path = tmp_path / "clients.pem"
    path.write_bytes(b"# ours\n" + authority.cert)
    tls = made(tmp_path, pairs[0], path)
    tls.check()
    assert tls.newest().verify_mode is ssl.CERT_REQUIRED
    assert len(tls.newest().get_ca_certs()) == 1


def broken(case: str, pair: Issued, other: Issued) -> dict[str, bytes]:
    return {
        "of two rotations": {"tls.crt": other.cert},
        "half a certificate": {"tls.crt": pair.cert[: len(pair.cert) // 2]},
        "half a key": {"tls.key": pair.key[: len(pair.key) // 2]},
        "empty": {"tls.crt": b"", "tls.key": b""},
        "the wrong way round": {"tls.crt": pair.key, "tls.key": pair.cert},
        "with a passphrase": {"tls.key": encrypted(pair.key)},
        "an authority that is none": {"ca.crt": b"soon\n"},
        "half an authority": {"ca.crt": pair.cert + pair.cert[:200]},
        "huge": {"tls.key": b"k" * (2**20 + 1)},
    }[case]


def encrypted(key: bytes) -> bytes:
    """The key behind a passphrase: nobody is there to be asked for it."""
    loaded = serialization.load_pem_private_key(key, None)
    behind = serialization.BestAvailableEncryption(b"secret")
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, behind)


@pytest.mark.parametrize(
    "case",
    [
        "of two rotations",
        "half a certificate",
        "half a key",
        "empty",
        "the wrong way round",
        "with a passphrase",
        "an authority that is none",
        "half an authority",
        "huge",
    ],
)
def test_what_cant_be_used_leaves_the_last_pair(
    case: str, tmp_path: Path, authority: Authority, pairs: tuple[Issued, Issued]
) -> None:
    """REL-02 https://github.com/vllm-project/production-stack/issues/659: broken, then the same bytes as before."""
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.cert)
    tls = made(tmp_path, pairs[0], ca)
    tls.check()
    context = tls.newest()
    contents = broken(case, *pairs)
    before = {name: (tmp_path / name).read_bytes() for name in contents}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)

    with pytest.raises(Unusable) as told:
        tls.check()
    assert not tls.check(), "it is said once"
    assert tls.error == str(told.value)
    assert str(tmp_path) in tls.error
    assert "\n" not in tls.error
    assert b"kkkk" not in tls.error.encode()
    assert tls.newest() is context

    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    assert not tls.check(), "nothing else is in use than before"
    assert tls.error is None
    assert tls.newest() is context


def test_missing_from_the_start(tmp_path: Path, pairs: tuple[Issued, Issued]) -> None:
    tls = made(tmp_path, pairs[0])
    (tmp_path / "tls.key").unlink()
    with pytest.raises(Unusable, match=r"tls\.key does not exist"):
        tls.check()


def test_a_rotated_secret(tmp_path: Path, pairs: tuple[Issued, Issued]) -> None:
    """REL-01 https://github.com/jimmidyson/configmap-reload/issues/190: certificate and key swap as one."""
    secret = MountedSecret(tmp_path / "tls")
    secret.put(tls__crt=pairs[0].cert, tls__key=pairs[0].key)
    tls = ClientTls(secret.folder / "tls.crt", secret.folder / "tls.key", None, lambda _: None)
    tls.check()
    before = tls.newest()
    for pair in (pairs[1], pairs[0], pairs[1]):
        secret.put(tls__crt=pair.cert, tls__key=pair.key)
        assert tls.check()
        assert tls.newest() is not before
        before = tls.newest()


def test_no_file_stays_open(tmp_path: Path, pairs: tuple[Issued, Issued]) -> None:
    tls = made(tmp_path, pairs[0])
    tls.check()
    count = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        pairs[number % 2].write(tmp_path)
        tls.check()
    assert len(list(Path("/proc/self/fd").iterdir())) == count
