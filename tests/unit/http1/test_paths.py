"""The closed list of paths."""

import pytest

from headrace_router.http1.paths import Kind, Refused, Route, resolve


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/x/../../sleep?level=2"),
        ("POST", "/v1/x/../chat/completions"),
        ("POST", "/v1/%2e%2e/reset_prefix_cache"),
        ("GET", "/v1/../metrics"),
        ("GET", "/v1/..%2fmetrics"),
        ("GET", "//v1/models"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/chat%2fcompletions"),
        ("POST", "/v1/chat/completions;x=1"),
        ("POST", "/V1/chat/completions"),
        ("GET", "/metrics"),
        ("OPTIONS", "*"),
        ("POST", "evil.example:80"),
        ("POST", ""),
        ("POST", "/v1/chat/completions#x"),
        ("POST", "/v1/chat/completions?a b"),
        ("POST", "/v1/chat/completions\udcff"),
        ("GET", "/v1/models/"),
    ],
)
def test_nothing_outside_the_list_passes(method: str, target: str) -> None:
    """SEC-01 (https://github.com/denn-gubsky/loomcycle/pull/854): the check is on the very string that is sent."""
    refused = resolve(method, target, {"/v1/rerank"})
    assert isinstance(refused, Refused)
    assert refused.status in (400, 404)


def test_an_absolute_target_loses_its_authority() -> None:
    """SEC-01: never a proxy to evil.example."""
    assert resolve("GET", "http://evil.example/v1/models") == Route(Kind.MODELS, "/v1/models", "/v1/models")
    assert isinstance(resolve("GET", "http://evil.example"), Refused)
    assert isinstance(resolve("GET", "http://evil.example?/v1/models"), Refused)


def test_query_and_escapes_stay_byte_for_byte() -> None:
    """PRO-05 (https://github.com/aio-libs/aiohttp/issues/8486): on a known path with that query."""
    target = "/v1/rerank?sig=%28x%29&q=a+b%2B%27"
    assert resolve("POST", target, {"/v1/rerank"}) == Route(Kind.POLICY, "/v1/rerank", target)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", "/v1/chat/completions", "POST"), ("POST", "/v1/models", "GET, HEAD"), ("PUT", "/v1/rerank", "GET, POST")],
)
def test_other_methods_are_refused_with_what_is_allowed(method: str, path: str, allow: str) -> None:
    refused = resolve(method, path, {"/v1/rerank"})
    assert isinstance(refused, Refused)
    assert (refused.status, refused.allow) == (405, allow)


def test_a_models_name_may_hold_slashes() -> None:
    route = resolve("GET", "/v1/models/meta-llama/Llama%2D3")
    assert isinstance(route, Route)
    assert route.model == "meta-llama/Llama-3"
