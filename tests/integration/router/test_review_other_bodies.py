"""Paths of a policy whose bodies aren't JSON, where engines call the model otherwise."""

from pathlib import Path

import pytest

from support.fake_engine import FakeEngine, answers
from support.raw_client import ask
from support.router_process import router_in_loop
from support.router_table import EngineAt, routing_table

FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n", FORM),
        (b"POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: application/json\r\n", b""),
        (b"GET /v1/audio/transcriptions HTTP/1.1\r\n", b""),
    ],
    ids=["form", "empty", "get"],
)
async def test_a_body_that_names_no_model_passes_unchanged(tmp_path: Path, head: bytes, body: bytes) -> None:
    async with FakeEngine(answers) as engine:
        at = EngineAt((engine.url,), served_name="org/M-70B")
        table = routing_table({"a": at}, paths=("/v1/audio/transcriptions",))
        async with router_in_loop(tmp_path / "t", table) as router:
            raw = b"%bHost: r\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
            assert (await ask(router.address, raw)).status == 200
            assert [request.body for request in engine.requests] == [body]
