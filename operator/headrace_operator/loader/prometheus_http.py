"""The one wrapper of prometheus-api-client: queries that end in time, in bounded memory, and tell what they know.

On the engine-signal path; runs in threads. The library by itself waits for ever, tries GETs three times more on top of
each time-out, follows redirects with the credentials, drops warnings and puts queries into the URL. Everything here
goes through a session that does none of that. Secrets are read from files and never stand in a message.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from headrace_api.units import number, seconds
from headrace_operator.loader.config_places import MetricSource

ATTEMPTS: Final = 2  # a connection that was idle too long breaks once
PIECE: Final = 65_536
MAX_SECRET: Final = 65_536
MAX_TOLD: Final = 200


class SourceFault(Exception):
    """A query that gave no answer: one line for people, without secrets."""


class RangeSeries(msgspec.Struct):
    """One series of an answer: its labels, and its samples as (seconds since the epoch, value as text)."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw


class _Body(msgspec.Struct):
    status: Literal["success", "error"]
    data: _Data | None = None
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: list[str] = []


_BODY: Final = msgspec.json.Decoder(_Body)
_SERIES: Final = msgspec.json.Decoder(list[RangeSeries])
_SCALAR: Final = msgspec.json.Decoder(tuple[float, str])


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the secret files of a source hold now; its repr shows none of it."""

    headers: tuple[tuple[str, str], ...] = ()
    basic: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"

    def without(self, text: str) -> str:
        """The text with every secret taken out, in case a server repeats what it was sent."""
        secrets = [value.removeprefix("Bearer ") for _, value in self.headers]
        if self.basic is not None:
            secrets += [self.basic[1], base64.b64encode(":".join(self.basic).encode()).decode()]
        for secret in filter(None, secrets):
            text = text.replace(secret, "…")
        return text


def read_credentials(source: MetricSource) -> Credentials:
    """The secrets as they are now.

    Raises:
        SourceFault: a file can't be read, or holds nothing that a header may carry.
    """
    if source.auth is None:
        return Credentials()
    if source.auth.basic is not None:
        password = _secret(source.auth.basic.password_file)
        return Credentials(basic=(source.auth.basic.username, password))
    token = _secret(source.auth.bearer_token_file or "")
    return Credentials(headers=(("Authorization", f"Bearer {token}"),))


def _secret(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_SECRET)
    except OSError as error:
        raise SourceFault(f"{path}: {error.strerror}; right would be a readable file with the secret") from None
    text = data.decode("utf-8", "replace").strip()
    if not text or not text.isprintable():
        raise SourceFault(f"{path}: empty, or not one line of text; right would be the secret alone")
    return text


class _Answer(requests.Response):
    """A whole answer in the form that the library takes apart; it keeps what the library drops."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.status_code = 200
        self._body = body
        self.warnings: list[str] = []

    def json(self, **_: Any) -> dict[str, Any]:
        try:
            body = _BODY.decode(self._body)
            if body.status != "success" or body.data is None:
                raise SourceFault(f"it answered an error: {_told(body.error_type, body.error)}")
            kind = body.data.result_type
            decoder: Any = {"matrix": _SERIES, "scalar": _SCALAR}.get(kind)
            if decoder is None:
                raise SourceFault(f"it answered with a {kind[:40]}; right would be a matrix or a scalar")
            result = decoder.decode(body.data.result)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise SourceFault(f"not the answer of a Prometheus: {str(error)[:MAX_TOLD]}") from None
        self.warnings = [warning[:MAX_TOLD] for warning in body.warnings]
        return {"data": {"result": result}}


class _Session(requests.Session):
    """POSTs a form, follows no redirect, reads no environment, ends at its deadline, holds at most ``limit`` bytes."""

    def __init__(self, limit: int, verify: bool | str) -> None:
        super().__init__()
        # Else ~/.netrc would replace the Authorization header, and proxies of the environment would get it.
        self.trust_env = False
        self.verify = verify
        self.deadline = 0.0
        self.answer = _Answer(b"")
        self._limit = limit

    def request(  # type: ignore[override]
        self, method: str, url: str, params: Any = None, **options: Any
    ) -> requests.Response:
        left = max(0.05, self.deadline - time.monotonic())
        options |= {"timeout": (left, left), "allow_redirects": False, "stream": True}
        with super().request(method, url, data=params, **options) as response:
            if response.status_code in range(300, 400):
                raise SourceFault(f"it answered {response.status_code}, a redirect; right would be its own address")
            body = self._read(response)
            if response.status_code != 200:
                raise SourceFault(f"it answered {response.status_code}: {_reason(body)}")
        answer = _Answer(body)
        self.answer = answer
        return answer

    def _read(self, response: requests.Response) -> bytes:
        body = bytearray()
        while piece := response.raw.read1(PIECE, decode_content=True):
            body += piece
            if len(body) > self._limit:
                raise SourceFault(f"its answer is larger than {self._limit} bytes (maxAnswer)")
            if time.monotonic() > self.deadline:
                raise requests.Timeout
        return bytes(body)


def _reason(body: bytes) -> str:
    try:
        parsed = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "not the answer of a Prometheus"
    return _told(parsed.error_type, parsed.error)


def _told(kind: str, error: str) -> str:
    text = " ".join(f"{kind}: {error}".split())[:MAX_TOLD]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class PrometheusClient:
    """Queries of one source with one set of credentials; one at a time."""

    def __init__(self, source: MetricSource, credentials: Credentials) -> None:
        self._timeout = seconds(source.timeout)
        self._credentials = credentials
        self._session = _Session(int(number(source.max_answer)), source.ca_file or True)
        headers = dict(credentials.headers)
        if source.tenant is not None:
            headers[source.tenant.header] = source.tenant.value
        self._library = PrometheusConnect(
            url=source.url.rstrip("/"),
            headers=headers,
            retry=Retry(total=0, redirect=False),
            auth=credentials.basic,
            session=self._session,
            method="POST",
        )

    def clock(self) -> float:
        """The server's own time, seconds since the epoch.

        Raises:
            SourceFault: no answer in time, or none that can be understood.
        """
        result: tuple[float, str] = self._query("time()")[0]
        return float(result[1])

    def series(self, query: str) -> tuple[list[RangeSeries], tuple[str, ...]]:
        """The samples that a range selector finds, and what the server warns of (then they may be a part of them).

        Raises:
            SourceFault: no answer in time, or none that can be understood.
        """
        return self._query(query)

    def close(self) -> None:
        """Free connections."""
        self._session.close()

    def _query(self, query: str) -> tuple[Any, tuple[str, ...]]:
        self._session.deadline = time.monotonic() + self._timeout
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = self._library.custom_query(query)
            except requests.Timeout:
                raise SourceFault(f"no answer within {self._timeout:g} s") from None
            except SourceFault as error:
                raise SourceFault(self._credentials.without(str(error))) from None
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                if attempt == ATTEMPTS or time.monotonic() > self._session.deadline:
                    raise SourceFault(self._credentials.without(_cause(error))) from None
            else:
                return result, tuple(self._credentials.without(warning) for warning in self._session.answer.warnings)
        raise AssertionError("unreachable")


def _cause(error: BaseException) -> str:
    """The innermost reason of a failed connection, in a few words."""
    seen: Iterable[BaseException] = (error,)
    for one in seen:
        inner = next((arg for arg in one.args if isinstance(arg, BaseException)), None) or getattr(one, "reason", None)
        if isinstance(inner, BaseException):
            return _cause(inner)
    text = str(error).rpartition("object at 0x")[2].partition(": ")[2] or str(error)
    return " ".join(text.split())[:MAX_TOLD] or type(error).__name__
