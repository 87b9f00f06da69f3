"""A request, as the rules see it: no framework's."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Header: TypeAlias = tuple[str, str]
"""A name in lower case, and a value. Both are latin-1, as HTTP has them."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What came in, but for its body."""

    method: str
    path: str
    """As it was sent, with what the application is mounted under; without the query."""
    query: str = ""
    route: str | None = None
    """The template that it matched (`/orders/{id}`); None where nobody knows."""
    headers: tuple[Header, ...] = ()
    """In their order, repeated ones too."""

    def values(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        wanted = name.lower()
        return [value for found, value in self.headers if found == wanted]

    def value(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.values(name)), None)

    @property
    def id(self) -> str | None:
        """What its sender, or a proxy, calls it: to be found again in logs and notes."""
        return self.value("x-request-id")

    @property
    def operation(self) -> str:
        """What is asked for, whoever asks: the method and the template or the path."""
        return f"{self.method} {self.route or self.path}"
