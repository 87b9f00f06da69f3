"""A flow: a call as a generator that yields what is to be sent, and is given the answers.

Everything but the sending is written once, here and in `flows/`; the two drivers (`sync_driver`,
`async_driver`) are all that knows the difference. A flow that is given an error by its driver may
answer it, or pass it on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec

T = TypeVar("T")

KEY: Final = "Idempotency-Key"
JSON: Final = "application/json"
WITHOUT_BODY: Final = frozenset({204, 304})
LONGEST_REFUSAL: Final = 2**16
"""Bytes that are read of a stream's answer that is none."""
CUT: Final = "the answer was cut off, or does not say how long it is"


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A request. It is the same over every try: the key in its headers was made once."""

    method: str
    path: str
    """With the query, if there is one."""
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    timeout: float = 30
    """Seconds for one try, from connecting to the last byte."""


class Pause(msgspec.Struct, frozen=True):
    """Nothing is sent for so long."""

    seconds: float


class Reply(msgspec.Struct, frozen=True):
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    tries: int = 1
    """How many times the request was sent."""

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


def is_delimited(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer says where it ends. One that ends with its connection may have been cut."""
    # A length that was cut off before its first digit is none; one that lacks later digits is still
    # longer than what has come, and a driver says so itself.
    if status in WITHOUT_BODY or headers.get("content-length", "").isdecimal():
        return True
    return headers.get("transfer-encoding", "").lower().endswith("chunked")


Step: TypeAlias = Send | Pause
Flow: TypeAlias = Generator[Step, Any, T]
Ask: TypeAlias = Callable[[Send], Flow[Reply]]
"""Sends a request until it is answered; raises where the answer is a problem."""


def new_key() -> str:
    """A key for one logical call, made above its tries."""
    return str(uuid4())


def get(path: str, query: Mapping[str, Any] | None = None) -> Send:
    """A question."""
    return Send(method="GET", path=_with_query(path, query))


def post(path: str, body: Any = None, *, key: str | None = None) -> Send:
    """A request that must not be carried out twice: it has a key, made here unless given."""
    headers = {"Content-Type": JSON, KEY: new_key() if key is None else key}
    return Send(method="POST", path=path, body=_encoded(body), headers=headers)


def put(path: str, body: Any) -> Send:
    """A request that may be carried out twice, and comes to the same."""
    return Send(method="PUT", path=path, body=_encoded(body), headers={"Content-Type": JSON})


def delete(path: str, query: Mapping[str, Any] | None = None) -> Send:
    """A removal. Carried out twice it comes to the same, but the second answer says so."""
    return Send(method="DELETE", path=_with_query(path, query))


def place(*parts: str) -> str:
    """A path below /v1, of names that may hold anything."""
    return "/v1/" + "/".join(_part(part) for part in parts)


def _part(part: str) -> str:
    # A key may be a dot or two, which would be taken out of the path.
    return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")


def _with_query(path: str, query: Mapping[str, Any] | None) -> str:
    said = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(said, doseq=True)}" if said else path


def _encoded(body: Any) -> bytes:
    return b"{}" if body is None else msgspec.json.encode(body)
