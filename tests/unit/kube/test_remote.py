"""Kubeconfigs of other clusters: only inline data is taken, and nothing of it is ever told."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_operator.kube.client import KubeFault
from headrace_operator.kube.remote import Access, KubeconfigRefused, read_access, remote_client
from headrace_operator.publisher.cluster.access import RemoteAccess

SECRET = "canary-3f9a"


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "other", "context": {}}, {"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://far.example:6443/"} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else user}],
    } | more


def written(folder: Path, data: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def test_what_is_taken(tmp_path: Path) -> None:
    authority = base64.b64encode(b"PEM").decode()
    found = read_access(written(tmp_path, config({"certificate-authority-data": authority})))
    assert found == Access("https://far.example:6443", b"PEM", SECRET, b"", b"")
    client = remote_client("far", found._replace(authority=b""), lambda: True)
    assert client.settings.host == "https://far.example:6443"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (config(user={"exec": {"command": "sh"}}), "user.exec: not taken here; right would be only"),
        (config(user={"auth-provider": {"name": "gcp"}}), "user.auth-provider: not taken here"),
        (config(user={"tokenFile": "/etc/passwd"}), "user.tokenFile: not taken here"),
        (config(user={"client-certificate": "/a", "client-key": "/b"}), "user.client-certificate: not taken here"),
        (config(user={"username": "u", "password": SECRET}), "user.password: not taken here"),
        (config(user={"token": SECRET, "as": "admin"}), "user.as: not taken here"),
        (config({"insecure-skip-tls-verify": True}), "cluster.insecure-skip-tls-verify: not taken here"),
        (config({"certificate-authority": "/etc/ca"}), "cluster.certificate-authority: not taken here"),
        (config({"proxy-url": "http://p"}), "cluster.proxy-url: not taken here"),
        (config({"server": "http://far"}), "cluster.server: right would be https://HOST:PORT"),
        (config({"server": "https://u:p@far"}), "cluster.server"),
        (config({"server": "https://far:99999"}), "cluster.server"),
        (config({"server": ["x"]}), "cluster.server"),
        (config({"certificate-authority-data": SECRET}), "certificate-authority-data: right would be base64"),
        (config({"certificate-authority-data": 7}), "certificate-authority-data: right would be base64"),
        (config(user={}), "user: right would be token, or client-certificate-data with client-key-data"),
        (config(user={"client-certificate-data": "cGVt"}), "user: right would be token"),
        (config(user={"token": f"{SECRET}\nX-Other: 1"}), "user.token: right would be one line"),
        (config(user={"token": 7}), "user.token: right would be one line"),
        (config(users=[]), "users: none is the one"),
        (config(clusters="x"), "clusters: none is the one"),
        (config(contexts=[{"name": "c", "context": None}]), "context: not a mapping"),
        (config(**{"current-context": ""}), "current-context: missing"),
        ("[1, 2]", "not a mapping"),
        (f"{{{SECRET}: [", "not YAML"),
        ("x" * (2**20 + 1), "more than 1048576 bytes"),
    ],
)
def test_what_is_refused(tmp_path: Path, data: Any, words: str) -> None:
    """Programs, files, proxies and TLS without a check: whoever may write the file would have the operator do that."""
    with pytest.raises(KubeconfigRefused) as refused:
        read_access(written(tmp_path, data))
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigRefused, match="No such file"):
        read_access(tmp_path / "none")


@pytest.mark.parametrize(
    "access",
    [
        Access("https://far", b"no PEM", "t", b"", b""),
        Access("https://far", b"\xff", "t", b"", b""),
        Access("https://far", b"", "", b"no PEM", b"either"),
    ],
)
def test_certificates_that_are_none(access: Access) -> None:
    with pytest.raises(KubeconfigRefused, match="is no PEM that fits"):
        remote_client("far", access, lambda: True)


def test_a_rotated_file_gives_another_client(tmp_path: Path) -> None:
    path = written(tmp_path, config())
    access = RemoteAccess("far", path, lambda: True)
    first = access.client()
    assert access.client() is first
    path.unlink()
    with pytest.raises(KubeFault, match="No such file") as fault:
        access.client()
    assert fault.value.forbidden
    written(tmp_path, config(user={"token": "another"}))
    assert access.client() is not first
    assert access.client().settings.get_api_key_with_prefix("authorization") == "Bearer another"


def test_a_mounted_secret_that_the_kubelet_swaps(tmp_path: Path) -> None:
    """Case REL-01: the kubelet swaps a link above the file, and the old file vanishes.

    https://github.com/jimmidyson/configmap-reload/issues/190
    """
    for number in range(3):
        (tmp_path / f"..{number}").mkdir()
        written(tmp_path / f"..{number}", config(user={"token": f"token-{number}"}))
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "kubeconfig").symlink_to("..data/kubeconfig")
    access = RemoteAccess("far", tmp_path / "kubeconfig", lambda: True)
    for number in range(3):
        (tmp_path / "..tmp").symlink_to(f"..{number}")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        assert access.client().settings.get_api_key_with_prefix("authorization") == f"Bearer token-{number}"


def test_a_file_that_breaks_and_is_restored(tmp_path: Path) -> None:
    """Case REL-02: the same bytes as before the fault are right again.

    https://github.com/vllm-project/production-stack/issues/659
    """
    access = RemoteAccess("far", written(tmp_path, config()), lambda: True)
    access.client()
    written(tmp_path, "current-context: [")
    for _ in range(2):
        with pytest.raises(KubeFault, match="not YAML"):
            access.client()
    written(tmp_path, config())
    assert access.client().settings.host == "https://far.example:6443"
