"""What a browser has submitted: the fields of the body, and the key among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.surfaces.http import form_body
from onefold.surfaces.http.problem import Refused, key_invalid

if TYPE_CHECKING:
    from onefold.surfaces.http.body import Digested
    from onefold.surfaces.http.request import Request


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form."""

    name: str
    value: str = ""
    filename: str | None = None
    """Of a file; empty where the visitor has chosen none."""

    @property
    def is_file(self) -> bool:
        """A file that was chosen; no page can hold it."""
        return bool(self.filename)


class Submitted(msgspec.Struct, frozen=True):
    """A form, in the order of its fields."""

    entries: tuple[Entry, ...] = ()
    media_type: str = form_body.URLENCODED

    @property
    def files(self) -> tuple[Entry, ...]:
        """The files that were chosen."""
        return tuple(entry for entry in self.entries if entry.is_file)

    def values(self, name: str) -> list[str]:
        """Every value of a field."""
        return [entry.value for entry in self.entries if entry.name == name]

    def with_value(self, name: str, value: str) -> Submitted:
        """The same form with one field set, in its place or at the end."""
        field = Entry(name=name, value=value)
        entries = tuple(field if entry.name == name else entry for entry in self.entries)
        if field not in entries:
            entries = (*entries, field)
        return msgspec.structs.replace(self, entries=entries)


def read_form(request: Request, body: Digested) -> Submitted:
    """The form in a body; an empty one where the body is no form."""
    content_type = request.value("content-type") or ""
    found = None if body.body is None else form_body.parts(body.body, content_type)
    if found is None:
        return Submitted()
    media_type = content_type.partition(";")[0].strip(" \t").lower()
    return Submitted(tuple(_entry(part) for part in found), media_type)


def key_in(form: Submitted, name: str) -> str | None:
    """The key in the hidden field; None where there is no such field."""
    found = form.values(name)
    if len(found) > 1:
        raise Refused(key_invalid("was sent more than once"))
    return next(iter(found), None)


def _entry(part: form_body.Part) -> Entry:
    if part.filename is None:
        return Entry(name=_text(part.name), value=_decoded(part.value))
    return Entry(name=_text(part.name), filename=_text(part.filename))


def _text(latin: str) -> str:
    return _decoded(latin.encode("latin-1"))


def _decoded(value: bytes) -> str:
    # What browsers send for a page in UTF-8, and every page of today is.
    return value.decode("utf-8", "replace")
