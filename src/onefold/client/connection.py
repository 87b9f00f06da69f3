"""The connection of a client: URL, API key, retry policy, and one request until it is answered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from onefold import __version__
from onefold.client.problems import ServerError, Unreachable, code_of, error_of, retry_after_of
from onefold.client.requests import ClientRequest, ClientResponse, encode_body, with_query
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.timestamps import span
from onefold.model.wire import decoder
from onefold.runtime import Pause, Send

if TYPE_CHECKING:
    from onefold.runtime import Procedure

T = TypeVar("T")

KEY: Final = "Idempotency-Key"
JSON: Final = {"Content-Type": "application/json"}
FIRST_REJECTION: Final = 300
"""A redirect is rejected too: the API key must not be sent to another URL."""
LONGEST_PROBLEM: Final = 2**16
"""Bytes of a problem that are read from a stream."""
CONFLICT: Final = 409
WITHOUT_BODY: Final = frozenset({204, 304})
TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})
FINAL: Final = "attempt_failed"
"""The code of a stored failure: every repetition of the request receives it."""

TRIES: Final = range(1, 1001)
_SHORTEST: Final = timedelta(milliseconds=1)


class ClientOptions(TypedDict, total=False):
    """How a client retries. See `RetryPolicy`."""

    tries: int
    timeout: timedelta
    deadline: timedelta
    first_pause: timedelta
    longest_pause: timedelta


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a client sends a request again, and when it gives up."""

    tries: int = 8
    """How often a request is sent at most."""
    timeout: timedelta = timedelta(seconds=30)
    """For one try, from connecting to the last byte of the response."""
    deadline: timedelta = timedelta(minutes=2)
    """For all tries. A pause that would exceed it is not started."""
    first_pause: timedelta = timedelta(milliseconds=250)
    """The pause after the first try. It doubles with every try; 50 to 100 % of it are used."""
    longest_pause: timedelta = timedelta(seconds=8)
    """The limit of a pause. A Retry-After of the server may be longer."""

    def __post_init__(self) -> None:
        if type(self.tries) is not int or self.tries not in TRIES:
            raise InvalidInput(
                "tries", f"must be a whole number from 1 to {TRIES[-1]}, got {self.tries!r}"
            )
        for field in ("timeout", "deadline", "first_pause", "longest_pause"):
            span(getattr(self, field), field, least=_SHORTEST)
        if self.longest_pause < self.first_pause:
            reason = f"must not be shorter than first_pause: {self.longest_pause}"
            raise ConflictingOptions("longest_pause", reason)

    def pause(self, tried: int, jitter: float) -> float:
        """Seconds after so many tries; `jitter` is a random number from 0 to 1."""
        # As numbers, and bounded: as a timedelta, the product could be out of range.
        doubled = self.first_pause.total_seconds() * 2.0 ** min(tried - 1, 64)
        return min(doubled, self.longest_pause.total_seconds()) * (0.5 + jitter / 2)


class Connection(msgspec.Struct, frozen=True):
    """Where the server is, the headers of every request, and the retry policy."""

    url: str
    headers: Mapping[str, str]
    retry: RetryPolicy

    def __repr__(self) -> str:
        # Without the headers: the API key is one of them.
        return f"Connection({self.url!r})"

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Procedure[ClientResponse]:
        """Send a GET."""
        return self.request(ClientRequest(method="GET", path=with_query(path, query or {})))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Procedure[ClientResponse]:
        """Send a POST with a new Idempotency-Key, so that the server executes it once."""
        headers = {**JSON, KEY: new_key()}
        content = encode_body(body or {})
        return self.request(ClientRequest(method="POST", path=path, body=content, headers=headers))

    def put(self, path: str, body: object) -> Procedure[ClientResponse]:
        """Send a PUT. It is idempotent by itself."""
        content = encode_body(body)
        return self.request(ClientRequest(method="PUT", path=path, body=content, headers=JSON))

    def delete(
        self, path: str, query: Mapping[str, Any] | None = None
    ) -> Procedure[ClientResponse]:
        """Send a DELETE. A repetition changes nothing, but its response is another one."""
        return self.request(ClientRequest(method="DELETE", path=with_query(path, query or {})))

    def request(self, request: ClientRequest) -> Procedure[ClientResponse]:
        """Send a request until it is answered. A problem is raised as its error."""
        response = yield from send_until_answered(request, self.retry)
        if response.status >= FIRST_REJECTION:
            raise error_of(response)
        return response


def connection_to(url: object, api_key: object, options: ClientOptions) -> Connection:
    """A connection, checked."""
    checks.options(options, ClientOptions.__optional_keys__)
    headers = {"Accept": "application/json", "User-Agent": f"onefold/{__version__}"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {_checked_key(api_key)}"
    return Connection(_checked_url(url), headers, RetryPolicy(**options))


def new_key() -> str:
    """A key for one call. All of its tries use it."""
    return str(uuid4())


def send_until_answered(
    request: ClientRequest,
    retry: RetryPolicy,
    *,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Procedure[ClientResponse]:
    """Send a request, again after transient failures; the last response, or `Unreachable`."""
    deadline = clock() + retry.deadline.total_seconds()
    tried = 0
    while True:
        tried += 1
        left = max(deadline - clock(), 0.001)
        timeout = min(retry.timeout.total_seconds(), left)
        failure: Unreachable | None = None
        response: ClientResponse | None = None
        try:
            response = yield Send(msgspec.structs.replace(request, timeout=timeout))
        except Unreachable as error:
            failure = error
        if response is not None and not is_transient(response):
            return msgspec.structs.replace(response, tries=tried)
        wait = max(retry.pause(tried, jitter()), wait_asked_by(response))
        if tried >= retry.tries or clock() + wait >= deadline:
            if failure is not None:
                raise Unreachable(failure.url, failure.reason, tries=tried) from failure.__cause__
            assert response is not None
            return msgspec.structs.replace(response, tries=tried)
        yield Pause(wait)


def is_transient(response: ClientResponse) -> bool:
    """Whether the same request may receive another response later."""
    if response.status in TRANSIENT:
        return code_of(response) != FINAL
    if response.status != CONFLICT:
        return False
    code = code_of(response)
    # The lease of an Idempotency-Key has a Retry-After; that of a delivery or a claim has none.
    return code == "in_progress" or (code == "lease_lost" and "retry-after" in response.headers)


def wait_asked_by(response: ClientResponse | None) -> float:
    """The seconds of its Retry-After; 0 without one."""
    wait = None if response is None else retry_after_of(response)
    return 0.0 if wait is None else wait.total_seconds()


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def complete_response(
    url: str, status: int, headers: Mapping[str, str], body: bytes
) -> ClientResponse:
    """A response that says where it ends; otherwise `Unreachable`, because it may be cut."""
    names = lower_names(headers)
    # A length that was cut before its first digit is no number. If later digits were cut, fewer
    # bytes than sent are announced, and the HTTP library itself raises.
    has_length = status in WITHOUT_BODY or names.get("content-length", "").isdecimal()
    if not has_length and not names.get("transfer-encoding", "").lower().endswith("chunked"):
        raise Unreachable(url, "the response was cut, or does not say how long it is")
    return ClientResponse(status, names, body)


def decode(response: ClientResponse, kind: type[T]) -> T:
    """The body of a response as a value."""
    wanted: Any = kind
    try:
        value: T = decoder(wanted).decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(response, str(error)) from error
    return value


def unreadable(response: ClientResponse, reason: str) -> ServerError:
    """The error for a response that an Onefold server does not send."""
    detail = f"and the client cannot read it: {reason}. Is there an Onefold server at this URL?"
    return ServerError(response.status, detail)


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        reason = f"must be text such as http://localhost:8080, got {type(url).__name__}"
        raise InvalidInput("url", reason)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Not repeated in the message: it may contain a password.
        raise InvalidInput("url", "must begin with http:// or https:// and a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput(
            "url", "must be a host, a port and optionally a path; give the API key as api_key="
        )
    return url.rstrip("/")


def _checked_key(api_key: object) -> str:
    # Not repeated in the message: it is a secret.
    if not isinstance(api_key, str) or not api_key.isascii() or not api_key.isprintable():
        raise InvalidInput("api_key", "must be the text that `onefold apikeys create` printed")
    if not api_key.strip():
        raise InvalidInput("api_key", "must not be empty; omit it if the server has no API keys")
    return api_key.strip()
