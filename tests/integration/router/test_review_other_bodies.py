"""Paths of a policy whose bodies aren't JSON, where engines call the model otherwise."""

from pathlib import Path

import pytest

from support.fake_engine import FakeEngine, answers
from support.raw_client import ask, post
from support.router_process import router_in_loop
from support.router_table import EngineAt, routing_table, table_bytes

FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'


AUDIO = "/v1/audio/transcriptions"
NO_MODEL = pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n", FORM),
        (b"POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: application/json\r\n", b""),
        (b"GET /v1/audio/transcriptions HTTP/1.1\r\n", b""),
    ],
    ids=["form", "empty", "get"],
)


@NO_MODEL
async def test_a_body_that_names_no_model_passes_unchanged(tmp_path: Path, head: bytes, body: bytes) -> None:
    async with FakeEngine(answers) as engine:
        at = EngineAt((engine.url,), served_name="org/M-70B")
        table = routing_table({"a": at}, paths=(AUDIO,))
        async with router_in_loop(tmp_path / "t", table) as router:
            raw = b"%bHost: r\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
            assert (await ask(router.address, raw)).status == 200
            assert [request.body for request in engine.requests] == [body]


@NO_MODEL
async def test_on_a_path_of_several_models_it_is_told_what_is_missing(tmp_path: Path, head: bytes, body: bytes) -> None:
    """Whichever policies they are of; bodies that do name a model pass, whatever they call themselves."""
    other = tmp_path / "other"
    async with FakeEngine(answers) as engine:
        other.write_bytes(table_bytes(routing_table({"b": engine.url}, model="n", policy="speech", paths=(AUDIO,))))
        table = routing_table({"a": engine.url}, paths=(AUDIO,))
        async with router_in_loop(tmp_path / "t", table, more=(other,)) as router:
            answer = await ask(router.address, b"%bHost: r\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
            assert (answer.status, answer.code) == (400, "bad_request")
            assert f"several models share the path {AUDIO}".encode() in answer.body
            assert b"right would be a JSON body with `model`, or for other bodies a path that only one" in answer.body
            assert not engine.requests
            named = b'{"model": "n"}'
            assert (await ask(router.address, post(named, AUDIO))).status == 200
            # Broken JSON is only that.
            broken = await ask(router.address, post(named[:-1], AUDIO))
            assert broken.status == 400
            assert b"several models" not in broken.body
