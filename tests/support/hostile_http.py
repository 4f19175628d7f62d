"""Messages by which one parser is made to see another request than the next: what was tried on others, and its kinds.

``raw`` is what a client sends, whole; ``status`` what the router answers before it closes the connection. Sources are
public reports; rows without one are kinds of RFC 9112 and RFC 9110 that the section in ``why`` names.
"""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Hostile:
    """One message. ``why``: the report's address or the section of the RFC."""

    name: str
    raw: bytes
    status: int
    why: str


def _post(*lines: bytes, body: bytes = HIDDEN, end: bytes = b"\r\n\r\n") -> bytes:
    return b"\r\n".join((b"POST /v1/chat/completions HTTP/1.1", b"Host: r", *lines)) + end + body


def _to(line: bytes) -> bytes:
    return line + b"\r\nHost: r\r\n\r\n"


_NETTY = "https://github.com/netty/netty/issues/9571"
_MEGALISTA = "https://github.com/google/megalista/pull/148"
_GUNICORN_TE = "https://github.com/advisories/GHSA-w3h3-4rj7-4ph4"
_GUNICORN_STRIP = "https://github.com/benoitc/gunicorn/issues/3364"
_UWSGI = "https://github.com/unbit/uwsgi/issues/2775"
_EMPTY_LENGTH = "https://github.com/haproxy/haproxy/issues/2237"
_SIGNED_LENGTH = "https://github.com/apple/servicetalk/pull/1427"
_HEX_LENGTH = "https://tenable.com/cve/CVE-2023-38697"
_TINYPROXY = "https://github.com/tinyproxy/tinyproxy/pull/610"
_TINYPROXY_TE = "https://github.com/tinyproxy/tinyproxy/pull/617"
_MONGOOSE = "https://github.com/cesanta/mongoose/issues/2293"
_TWO_HOSTS = "https://app.opencve.io/cve/CVE-2026-34525"
_FOLD = "https://github.com/stephenberry/glaze/pull/2661"
_PATHS = "https://github.com/denn-gubsky/loomcycle/pull/854"

HEADS = [
    # Line ends
    Hostile("lf_alone", b"POST /v1/chat/completions HTTP/1.1\nHost: r\nContent-Length: 0\n\n", 400, "RFC 9112 2.2"),
    Hostile("lf_alone_then_a_whole_head", b"POST / HTTP/1.1\nHost: r\n\n" + HIDDEN, 400, "RFC 9112 2.2"),
    Hostile("lf_ends_one_line", _post(b"X-A: b\nContent-Length: 70"), 400, "RFC 9112 2.2"),
    Hostile("lf_ends_the_head", b"POST / HTTP/1.1\r\nHost: r\r\n\n" + HIDDEN, 400, "RFC 9112 2.2"),
    Hostile("lf_before_crlf", _post(b"X-A: b\n", b"Content-Length: 0"), 400, "RFC 9112 2.2"),
    Hostile("cr_in_a_value", _post(b"X-Abc: \rxTransfer-Encoding: chunked"), 400, _MEGALISTA),
    Hostile("cr_ends_a_line", _post(b"X-A: b\rContent-Length: 70"), 400, _MEGALISTA),
    Hostile("cr_before_crlf", _post(b"X-A: b\r", b"Content-Length: 0"), 400, "RFC 9112 2.2"),
    Hostile("cr_behind_the_version", b"GET /v1/models HTTP/1.1\r\r\nHost: r\r\n\r\n", 400, "RFC 9112 2.2"),
    Hostile("two_empty_lines_first", b"\r\n\r\n" + HIDDEN, 400, "RFC 9112 2.2"),
    Hostile("lf_first", b"\n" + HIDDEN, 400, "RFC 9112 2.2"),
    Hostile(
        "space_line_before_headers", b"GET /v1/models HTTP/1.1\r\n Host: r\r\nHost: r\r\n\r\n", 400, "RFC 9112 2.2"
    ),
    # Names
    Hostile("space_before_colon", _post(b"Content-Length: 70", b"Transfer-Encoding : chunked"), 400, _NETTY),
    Hostile("tab_before_colon", _post(b"Transfer-Encoding\t: chunked"), 400, _FOLD),
    Hostile("space_in_a_name", _post(b"Content Length: 70"), 400, "RFC 9112 5.1"),
    Hostile("no_colon", _post(b"Content-Length 70"), 400, _MONGOOSE),
    Hostile("no_name", _post(b": x", b"Content-Length: 0"), 400, "RFC 9110 5.1"),
    Hostile("nul_in_a_name", _post(b"Content-Length\x00: 70"), 400, "RFC 9110 5.1"),
    Hostile("vt_in_a_name", _post(b"Transfer-Encoding\x0b: chunked"), 400, "RFC 9110 5.1"),
    Hostile("nbsp_in_a_name", _post(b"\xa0Content-Length: 70"), 400, "RFC 9110 5.1"),
    Hostile("quoted_name", _post(b'"Content-Length": 70'), 400, "RFC 9110 5.1"),
    Hostile("fold", _post(b"X-A: b", b" Content-Length: 70"), 400, _FOLD),
    Hostile("fold_by_tab", _post(b"Transfer-Encoding:", b"\tchunked"), 400, _UWSGI),
    # Values
    Hostile("nul_in_a_value", _post(b"X-A: b\x00Content-Length: 70"), 400, "RFC 9110 5.5"),
    Hostile("bell_in_a_value", _post(b"X-A: \x07"), 400, "RFC 9110 5.5"),
    Hostile("del_in_a_value", _post(b"X-A: \x7f"), 400, "RFC 9110 5.5"),
    Hostile("nul_in_undecodable", _post(b"X-A: \xff\x00"), 400, "RFC 9110 5.5"),
    # Content-Length
    Hostile("two_lengths", _post(b"Content-Length: 0", b"Content-Length: 70"), 400, _UWSGI),
    Hostile("same_length_twice", _post(b"Content-Length: 0", b"content-length: 0"), 400, _TINYPROXY),
    Hostile("list_of_lengths", _post(b"Content-Length: 0, 0"), 400, "RFC 9110 8.6"),
    Hostile("plus_length", _post(b"Content-Length: +70"), 400, _SIGNED_LENGTH),
    Hostile("minus_length", _post(b"Content-Length: -1"), 400, _SIGNED_LENGTH),
    Hostile("hex_length", _post(b"Content-Length: 0x46"), 400, _HEX_LENGTH),
    Hostile("empty_length", _post(b"Content-Length:"), 400, _EMPTY_LENGTH),
    Hostile("space_in_a_length", _post(b"Content-Length: 7 0"), 400, "RFC 9110 8.6"),
    Hostile("underscore_in_a_length", _post(b"Content-Length: 7_0"), 400, "RFC 9110 8.6"),
    Hostile("fraction", _post(b"Content-Length: 70.0"), 400, "RFC 9110 8.6"),
    Hostile("other_digits", _post("Content-Length: \u0667\u0660".encode()), 400, "RFC 9110 8.6"),
    Hostile("length_of_64_bits", _post(b"Content-Length: 18446744073709551686"), 400, _UWSGI),
    Hostile("length_of_5000_digits", _post(b"Content-Length: " + b"9" * 5000), 400, "RFC 9110 8.6"),
    # Transfer-Encoding
    Hostile("length_and_chunked", _post(b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400, "RFC 9112 6.1"),
    Hostile("chunked_and_length", _post(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400, "RFC 9112 6.1"),
    Hostile("chunked_then_identity", _post(b"Transfer-Encoding: chunked, identity"), 400, _GUNICORN_TE),
    Hostile("identity", _post(b"Transfer-Encoding: identity"), 400, _GUNICORN_TE),
    Hostile("chunked_twice", _post(b"Transfer-Encoding: chunked, chunked"), 400, "RFC 9112 6.1"),
    Hostile("two_coding_lines", _post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"), 400, "RFC 9112 6.1"),
    Hostile("xchunked", _post(b"Transfer-Encoding: xchunked"), 400, _TINYPROXY_TE),
    Hostile("quoted_chunked", _post(b'Transfer-Encoding: "chunked"'), 400, _TINYPROXY_TE),
    Hostile("chunked_with_parameter", _post(b"Transfer-Encoding: chunked;q=1"), 400, _TINYPROXY_TE),
    Hostile("empty_coding", _post(b"Transfer-Encoding:"), 400, "RFC 9112 6.1"),
    Hostile("comma_chunked", _post(b"Transfer-Encoding: ,chunked"), 501, "RFC 9112 6.1"),
    Hostile("chunked_in_vt", _post(b"Transfer-Encoding: \x0bchunked"), 400, _GUNICORN_STRIP),
    Hostile("chunked_in_nbsp", _post(b"Transfer-Encoding: \xa0chunked"), 400, _GUNICORN_STRIP),
    Hostile("gzip_then_chunked", _post(b"Transfer-Encoding: gzip, chunked"), 501, "RFC 9112 6.1"),
    Hostile(
        "chunked_in_1_0",
        b"POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        400,
        "RFC 9112 6.1",
    ),
    # What the next parser may read from the first line or from the last
    Hostile("two_kinds", _post(b"Content-Type: application/json", b"Content-Type: text/plain"), 400, "RFC 9110 8.3"),
    Hostile("two_credentials", _post(b"Authorization: Bearer a", b"Authorization: Bearer b"), 400, "RFC 9110 11.6.2"),
    # Host
    Hostile("no_host", b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "RFC 9112 3.2"),
    Hostile("two_hosts", b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, _TWO_HOSTS),
    Hostile("two_hosts_in_1_0", b"GET /v1/models HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400, _TWO_HOSTS),
    Hostile("host_with_a_path", b"GET /v1/models HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "RFC 9112 3.2"),
    Hostile("host_with_space", b"GET /v1/models HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "RFC 9112 3.2"),
    Hostile("host_with_user", b"GET /v1/models HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "RFC 9112 3.2"),
    Hostile("host_with_two_ports", b"GET /v1/models HTTP/1.1\r\nHost: a:1:2\r\n\r\n", 400, "RFC 9112 3.2"),
    # Request line
    Hostile("http_0_9", b"GET /v1/models\r\n\r\n", 400, "RFC 9112 3"),
    Hostile("space_in_the_target", _to(b"GET /v1/models /x HTTP/1.1"), 400, "RFC 9112 3"),
    Hostile("two_spaces", _to(b"GET  /v1/models HTTP/1.1"), 400, "RFC 9112 3"),
    Hostile("tab_for_space", _to(b"GET\t/v1/models\tHTTP/1.1"), 400, "RFC 9112 3"),
    Hostile("space_behind_the_version", _to(b"GET /v1/models HTTP/1.1 "), 400, "RFC 9112 3"),
    Hostile("space_first", _to(b" GET /v1/models HTTP/1.1"), 400, "RFC 9112 3"),
    Hostile("no_method", _to(b"/v1/models HTTP/1.1"), 400, "RFC 9112 3"),
    Hostile("method_is_no_token", _to(b"G(T /v1/models HTTP/1.1"), 400, "RFC 9110 9.1"),
    Hostile("method_without_end", _to(b"A" * 33 + b" /v1/models HTTP/1.1"), 400, "RFC 9110 9.1"),
    Hostile("http_2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "RFC 9113 3.4"),
    Hostile("http_1_2", _to(b"GET /v1/models HTTP/1.2"), 505, "RFC 9112 2.3"),
    Hostile("http_1_10", _to(b"GET /v1/models HTTP/1.10"), 400, "RFC 9112 2.3"),
    Hostile("http_in_lower_case", _to(b"GET /v1/models http/1.1"), 400, "RFC 9112 2.3"),
    Hostile("no_version_number", _to(b"GET /v1/models HTTP/"), 400, "RFC 9112 2.3"),
    Hostile("other_protocol", _to(b"GET /v1/models ICY/1.1"), 400, "RFC 9112 2.3"),
    # Targets
    Hostile("asterisk", _to(b"OPTIONS * HTTP/1.1"), 400, "RFC 9112 3.2.4"),
    Hostile("authority", _to(b"CONNECT 169.254.169.254:80 HTTP/1.1"), 400, "RFC 9112 3.2.3"),
    Hostile("relative", _to(b"GET v1/models HTTP/1.1"), 400, "RFC 9112 3.2.1"),
    Hostile("other_scheme", _to(b"GET ftp://h/v1/models HTTP/1.1"), 400, "RFC 9112 3.2.2"),
    Hostile("http_without_a_host", _to(b"GET http:///v1/models HTTP/1.1"), 400, "RFC 9110 4.2.1"),
    Hostile("nul_in_the_target", _to(b"GET /v1/models\x00 HTTP/1.1"), 400, "RFC 3986 2"),
    Hostile("del_in_the_target", _to(b"GET /v1/models\x7f HTTP/1.1"), 400, "RFC 3986 2"),
    Hostile("bytes_in_the_target", _to("GET /v1/m\u00f6dels HTTP/1.1".encode()), 400, "RFC 3986 2"),
    # Sizes
    Hostile("target_too_long", _to(b"GET /" + b"a" * 16_384 + b" HTTP/1.1"), 414, "RFC 9110 4.1"),
    Hostile("method_of_many_bytes", b"G" * 17_000 + b"\r\nHost: r\r\n\r\n", 400, "RFC 9112 3"),
    Hostile("long_target_without_version", b"G /" + b"a" * 17_000 + b"\r\nHost: r\r\n\r\n", 414, "RFC 9112 3"),
    Hostile("target_without_end", b"GET /" + b"a" * 17_000, 414, "RFC 9110 4.1"),
    Hostile("header_too_large", _post(b"X-A: " + b"a" * 32_768), 431, "RFC 6585 5"),
    Hostile("too_many_headers", _post(*[b"X-A: b"] * 100), 431, "RFC 6585 5"),
    Hostile("head_too_large", _post(*[b"X-A: " + b"a" * 30_000] * 3), 431, "RFC 6585 5"),
    Hostile("head_without_end", _post(*[b"X-A: " + b"a" * 30_000] * 3, end=b""), 431, "RFC 6585 5"),
    # What is no HTTP, and what can't be met
    Hostile("tls_hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "RFC 8446 5.1"),
    Hostile("nul_first", b"\x00GET / HTTP/1.1", 400, "RFC 9112 3"),
    Hostile("other_expectation", _post(b"Expect: 200-ok"), 417, "RFC 9110 10.1.1"),
    Hostile("two_expectations", _post(b"Expect: 100-continue", b"Expect: 100-continue"), 417, "RFC 9110 10.1.1"),
]

# Paths that are sound HTTP and lead nowhere (SEC-01): refused by the closed list of paths, on the bytes as they came.
PATHS = [
    Hostile(name, _to(b"POST " + target + b" HTTP/1.1"), status, _PATHS)
    for name, target, status in [
        ("dot_segments", b"/v1/x/../../sleep?level=2", 404),
        ("encoded_dots", b"/v1/%2e%2e/reset_prefix_cache", 404),
        ("encoded_slash", b"/v1/..%2fmetrics", 404),
        ("twice_encoded_slash", b"/v1/..%252fmetrics", 404),
        ("two_slashes", b"//v1/models", 404),
        ("backslash", b"/v1\\..\\metrics", 404),
        ("fragment", b"/v1/chat/completions#x", 400),
        ("slash_behind", b"/v1/chat/completions/", 404),
        ("encoded_name", b"/v1/chat/completion%73", 404),
        ("absolute_to_another", b"http://evil.example/metrics", 404),
        ("semicolon", b"/v1/chat/completions;x=1", 404),
    ]
]

_TERM = "https://github.com/HackTricks-wiki/hacktricks/pull/1567"
_GO_LF = "https://github.com/golang/go/issues/71988"
_FASTHTTP = "https://github.com/valyala/fasthttp/pull/1899"
_POUND = "https://github.com/graygnuorg/pound/issues/19"
_POUND_DATA = "https://github.com/graygnuorg/pound/pull/43"
_LIBEVENT = "https://github.com/libevent/libevent/pull/1542"
_UHTTPD = "https://github.com/openwrt/uhttpd/issues/3"
_BUN = "https://github.com/oven-sh/bun/pull/26931"
_VANILLA = "https://github.com/enghitalo/vanilla/pull/110"
_STR_02 = "https://github.com/aio-libs/aiohttp/issues/3966"  # STR-02

# Chunked bodies that are broken; ``status`` is what a client that uploads one is answered.
CHUNKS = [
    Hostile("no_hex", b"zz\r\n", 400, _STR_02),
    Hostile("size_with_0x", b"0x5\r\nhello\r\n0\r\n\r\n", 400, _POUND),
    Hostile("size_with_plus", b"+5\r\nhello\r\n0\r\n\r\n", 400, _LIBEVENT),
    Hostile("size_with_minus", b"-5\r\nhello\r\n0\r\n\r\n", 400, _LIBEVENT),
    Hostile("minus_zero", b"-0\r\n\r\n", 400, _LIBEVENT),
    Hostile("space_before_the_size", b" 5\r\nhello\r\n0\r\n\r\n", 400, _LIBEVENT),
    Hostile("space_behind_the_size", b"5 \r\nhello\r\n0\r\n\r\n", 400, "RFC 9112 7.1"),
    Hostile("underscore_in_the_size", b"0_5\r\nhello\r\n0\r\n\r\n", 400, _UHTTPD),
    Hostile("cr_before_the_size", b"\r5\r\nhello\r\n0\r\n\r\n", 400, _UHTTPD),
    Hostile("size_of_33_bits", b"100000005\r\nhello\r\n0\r\n\r\n", 400, _BUN),
    Hostile("size_of_65_bits", b"10000000000000005\r\nhello\r\n0\r\n\r\n", 400, _BUN),
    Hostile("size_of_many_zeros", b"0000000000000005\r\nhello\r\n0\r\n\r\n", 400, "RFC 9112 7.1"),
    Hostile("no_size", b"\r\nhello\r\n0\r\n\r\n", 400, "RFC 9112 7.1"),
    Hostile("no_size_but_extension", b";a=b\r\nhello\r\n0\r\n\r\n", 400, "RFC 9112 7.1"),
    Hostile("lf_behind_the_size", b"5\nhello\r\n0\r\n\r\n", 400, _GO_LF),
    Hostile("lf_in_an_extension", b"5;a\nhello\r\n0\r\n\r\n", 400, _FASTHTTP),
    Hostile("cr_in_an_extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n", 400, _TERM),
    Hostile("nul_in_an_extension", b"5;a\x00\r\nhello\r\n0\r\n\r\n", 400, _TERM),
    Hostile("extension_without_end", b"5;" + b"a" * 1_100, 400, "RFC 9112 7.1.1"),
    Hostile("extensions_larger_than_the_body", (b"1;" + b"a" * 999 + b"\r\nx\r\n") * 20, 400, "RFC 9112 7.1.1"),
    Hostile("no_crlf_behind_the_data", b"5\r\nhello0\r\n\r\n", 400, _VANILLA),
    Hostile("data_longer_than_its_size", b"5\r\nhelloXXX\r\n0\r\n\r\n", 400, _POUND_DATA),
    Hostile("lf_behind_the_data", b"5\r\nhello\n0\r\n\r\n", 400, _POUND_DATA),
    Hostile("two_bytes_that_are_no_crlf", b"5\r\nhelloXX0\r\n\r\n", 400, _POUND_DATA),
    Hostile("two_bytes_that_end_the_read", b"5\r\nhelloXX", 400, _POUND_DATA),
    Hostile("trailer_without_colon", b"0\r\nContent-Length 5\r\n\r\n", 400, "RFC 9112 7.1.2"),
    Hostile("trailer_with_lf", b"0\r\nX: a\nY: b\r\n\r\n", 400, "RFC 9112 7.1.2"),
    Hostile("folded_trailer", b"0\r\nX: a\r\n b\r\n\r\n", 400, "RFC 9112 7.1.2"),
    Hostile("trailer_without_end", b"0\r\nX: " + b"a" * 17_000, 400, "RFC 9112 7.1.2"),
    Hostile("trailers_without_end", b"0\r\n" + b"X: a\r\n" * 3_000, 400, "RFC 9112 7.1.2"),
]
