"""Engines' addresses: one canonical form, and clear words for the others.

Case CRD-05: on an IPv6 cluster every request fails or goes to a wrong port
(https://github.com/vllm-project/router/pull/96, https://github.com/kubernetes-sigs/agent-sandbox/pull/1014).
"""

from __future__ import annotations

import pytest

from headrace_api.urls import endpoint_url, normal_url, without_credentials


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("http://a:8000", "http://a:8000"),
        ("http://a:8000/", "http://a:8000"),
        ("HTTPS://Use1-A.GPU.example", "https://use1-a.gpu.example"),
        ("http://[fd00::2]:8000/", "http://[fd00::2]:8000"),
        ("http://[FD00:0:0:0:0:0:0:2]:8000", "http://[fd00::2]:8000"),
        ("http://[::ffff:10.0.0.5]", "http://[::ffff:a00:5]"),
        ("http://10.0.0.5:1", "http://10.0.0.5:1"),
        ("http://svc_1.ns:65535", "http://svc_1.ns:65535"),
    ],
)
def test_one_canonical_form(text: str, normal: str) -> None:
    assert normal_url(text) == normal
    assert normal_url(normal) == normal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://fd00::2:8000", 'without brackets; right would be "http://[fd00::2]:8000"'),
        ("https://fd00::2", 'without brackets; right would be "https://[fd00::2]"'),
        ("http://a:b:c", 'without brackets; right would be "http://[fd00::2]:8000"'),
        ("http://a:8000/v1", 'has a path; right would be "http://a:8000", the request brings its own'),
        ("http://a:8000/v1/", 'has a path; right would be "http://a:8000", the request brings its own'),
        ("http://a:8000//", "has a path"),
        ("http://a?key=1", 'has a path; right would be "http://a"'),
        ("http://a#x", "has a path"),
        ("a:8000", 'has no scheme; right would be "http://a:8000"'),
        ("", "names no host"),
        ("http://", "names no host"),
        ("http://:80", "names no host"),
        ("ftp://a", "unknown scheme; right would be http or https"),
        ("https://u:p@a/", "carries credentials"),
        ("http://[fd00::2", "no IPv6 address in its brackets"),
        ("http://[fe80::1%25eth0]:80", "no IPv6 address in its brackets"),
        ("http://[::::]", "no IPv6 address in its brackets"),
        ("http://[::1]x:80", "no IPv6 address in its brackets"),
        ("http://1.2.3.400", "no IPv4 address for its host"),
        ("http://a..b", "has no host name"),
        ("http://-a", "has no host name"),
        ("http://a b", "has no host name"),
        ("http://" + "a" * 254, "has no host name"),
        ("http://169.254.169.254", "is link-local, multicast or no address of a machine"),
        ("http://[fe80::1]:80", "link-local"),
        ("http://[::ffff:169.254.169.254]:80", "link-local"),
        ("http://[64:ff9b::a9fe:a9fe]", "link-local"),
        ("http://0.0.0.0:8000", "no address of a machine"),
        ("http://[::]:8000", "no address of a machine"),
        ("http://224.0.0.1", "multicast"),
        ("http://255.255.255.255", "no address of a machine"),
        ("http://a:0", "has no such port; right would be 1 to 65535"),
        ("http://a:65536", "has no such port"),
        ("http://a:", "has no such port"),
        ("http://a:8o", "has no such port"),
    ],
)
def test_refused_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        normal_url(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text", ["https://user:hunter2@a/", "user:hunter2@a", "https://hunter2@a/x://y@z", "x://@hunter2@h"]
)
def test_a_password_is_never_shown(text: str) -> None:
    assert "hunter2" not in without_credentials(text)
    with pytest.raises(ValueError) as error:
        normal_url(text)
    assert "hunter2" not in str(error.value)


def test_a_long_address_is_cut() -> None:
    assert len(without_credentials("http://" + "a" * 10_000)) < 130


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("fd00::1f", "http://[fd00::1f]:8000"),
        ("10.0.0.5", "http://10.0.0.5:8000"),
        ("vllm.ns.svc", "http://vllm.ns.svc:8000"),
    ],
)
def test_endpoint_url(address: str, url: str) -> None:
    assert endpoint_url(address, 8000) == url


def test_a_pending_pod_has_no_url() -> None:
    """podIP: "" while a pod is pending: it must not become ``http://:8000``."""
    with pytest.raises(ValueError, match="the address is empty"):
        endpoint_url("", 8000)
