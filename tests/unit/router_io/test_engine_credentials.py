"""What engines' references mean: keys and authorities of their own namespace, and nothing else in their stead."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headrace_api.table import TableAuth, TableEngine, TableTls
from headrace_router.upstream.credentials import EngineCredentials, Reference, ca_of, key_of
from headrace_router.upstream.port import NotSent
from headrace_router.upstream.trust import trust_in
from support.certificates import Authority, MountedSecret

ENGINE = TableEngine(
    id="inference/a",
    auth=TableAuth(secret="engine-key", key="token"),
    tls=TableTls(ca_config_map="engine-ca", ca_key="ca.crt"),
)
KEY = Reference("inference", "secrets", "engine-key", "token")
CA = Reference("inference", "configmaps", "engine-ca", "ca.crt")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def put(folder: Path, reference: Reference, content: bytes) -> Path:
    path = folder.joinpath(*reference)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def followed(folder: Path | None, engine: TableEngine = ENGINE) -> EngineCredentials:
    made = EngineCredentials(folder)
    made.follow([engine])
    made.check()
    return made


def test_a_key_and_an_authority(tmp_path: Path, authority: Authority) -> None:
    put(tmp_path, KEY, b"sk-secret\n")
    put(tmp_path, CA, authority.cert)
    found = followed(tmp_path)
    assert (key_of(ENGINE), ca_of(ENGINE)) == (KEY, CA)
    assert found.authorization(ENGINE) == b"Authorization: Bearer sk-secret\r\n"
    context = found.context(CA)
    assert context is found.context(CA)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1
    assert found.lacking(ENGINE) is None
    assert found.errors() == []


def test_an_engine_without_references_has_no_key_and_the_systems_authorities(tmp_path: Path) -> None:
    plain = TableEngine(id="inference/b")
    found = followed(tmp_path, plain)
    assert found.authorization(plain) is None
    assert found.context(ca_of(plain)).verify_mode is ssl.CERT_REQUIRED
    assert found.context(None).check_hostname
    assert found.lacking(plain) is None


def test_another_namespaces_secret_of_the_same_name_is_not_used(tmp_path: Path, authority: Authority) -> None:
    """Who may write engines in one namespace must not have another's key sent to an address of his own."""
    put(tmp_path, KEY._replace(namespace="other"), b"sk-of-others")
    put(tmp_path, CA, authority.cert)
    found = followed(tmp_path)
    with pytest.raises(
        NotSent, match=r"engine's key is missing: right would be the file .*inference/secrets/engine-key"
    ):
        found.authorization(ENGINE)
    climbing = TableEngine(id="inference/c", auth=TableAuth(secret="../../other/secrets/engine-key", key="token"))
    with pytest.raises(NotSent):
        found.authorization(climbing)


@pytest.mark.parametrize("folder", [True, False])
def test_what_is_missing_is_never_replaced(tmp_path: Path, folder: bool) -> None:
    found = followed(tmp_path / "nowhere" if folder else None)
    word = "is missing: right would be the file" if folder else "right would be --credentials-dir"
    for ask in (lambda: found.authorization(ENGINE), lambda: found.context(CA)):
        with pytest.raises(NotSent, match=word):
            ask()
    assert len(found.errors()) == 2
    assert word in (found.lacking(ENGINE) or "")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"a\r\nx-admin: 1", b"nul\x00", "sk-é".encode(), b"k" * 20_000]
)
def test_no_key_that_could_split_a_head(tmp_path: Path, content: bytes) -> None:
    """SEC-02 https://github.com/agentgateway/agentgateway/pull/3144: no Secret becomes a header of its own."""
    path = put(tmp_path, KEY, content)
    found = followed(tmp_path)
    with pytest.raises(NotSent) as told:
        found.authorization(ENGINE)
    assert str(path) in str(told.value)
    assert content.strip() == b"" or content[:5].decode("latin-1") not in str(told.value).replace(str(path), "")


@pytest.mark.parametrize("cut", ["half", "no end", "text", "empty"])
def test_half_a_bundle_of_authorities_keeps_the_last(tmp_path: Path, authority: Authority, cut: str) -> None:
    put(tmp_path, KEY, b"sk-1")
    path = put(tmp_path, CA, authority.cert)
    found = followed(tmp_path)
    before = found.context(CA)
    one = authority.cert
    path.write_bytes({"half": one + one[: len(one) // 2], "no end": one[:-30], "text": b"soon", "empty": b""}[cut])

    checked = found.check()
    assert len(checked.refused) == 1
    assert str(path) in checked.refused[0]
    assert found.check().refused == ()
    assert found.context(CA) is before
    assert found.errors() == list(checked.refused)

    path.write_bytes(one)
    assert found.check().refused == ()
    assert found.errors() == []


def test_a_rotated_authority_is_a_new_context_and_one_taken_away_is_none(tmp_path: Path, authority: Authority) -> None:
    mounted = MountedSecret(tmp_path / "inference" / "configmaps" / "engine-ca")
    mounted.put(ca__crt=authority.cert)
    put(tmp_path, KEY, b"sk-1")
    found = followed(tmp_path)
    before = found.context(CA)
    mounted.put(ca__crt=Authority().cert)
    assert found.check().changed == {CA}
    assert found.context(CA) is not before
    mounted.put(other=b"x")
    assert found.check().changed >= {CA}
    with pytest.raises(NotSent):
        found.context(CA)


def test_a_rotated_key_is_used_and_one_taken_away_is_none(tmp_path: Path, authority: Authority) -> None:
    path = put(tmp_path, KEY, b"sk-1")
    put(tmp_path, CA, authority.cert)
    found = followed(tmp_path)
    path.write_bytes(b"sk-2")
    assert found.check().changed == {KEY}
    assert found.authorization(ENGINE) == b"Authorization: Bearer sk-2\r\n"
    path.unlink()
    assert found.check().changed == {KEY}
    with pytest.raises(NotSent):
        found.authorization(ENGINE)


def test_what_no_engine_names_troubles_nobody(tmp_path: Path, authority: Authority) -> None:
    put(tmp_path, KEY, b"sk-1")
    put(tmp_path, CA, authority.cert)
    put(tmp_path, KEY._replace(key="notes"), b"two words")
    found = followed(tmp_path)
    assert found.errors() == []


def test_no_message_holds_a_key(tmp_path: Path) -> None:
    put(tmp_path, KEY, b"canary 1")
    found = followed(tmp_path)
    assert "canary" not in repr((found.errors(), found.lacking(ENGINE), vars(found)["_errors"]))


def test_trust_in_no_certificate() -> None:
    with pytest.raises(ValueError, match="holds no certificate"):
        trust_in(b"-----BEGIN PRIVATE KEY-----\n")
