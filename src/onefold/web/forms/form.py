"""A form of an application: its fields, its key, and its pages.

A response of 4xx frees the key, so that a corrected form runs. A replay is the same redirect
without its cookies. Other answers of a claim are pages.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import msgspec

from onefold.errors import InvalidInput, UsageError
from onefold.model.unique import fingerprint as digest
from onefold.web.forms.form_keys import FIELD, MAX_AGE, FormKeys, RefusedKey, checked_name
from onefold.web.forms.pages import page
from onefold.web.http import prefers_html
from onefold.web.idempotency import body as form_body
from onefold.web.idempotency.fingerprint import Fields
from onefold.web.idempotency.key import KeyRules, check_key, read_key
from onefold.web.problems import (
    KEY_EXPIRED,
    KEY_INVALID,
    KEY_MISSING,
    KEY_REUSED,
    Refused,
    key_invalid,
    make,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.web.forms.form_keys import FormKey
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.idempotency.body import Digested
    from onefold.web.problems import Problem


class FormEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form."""

    name: str
    value: str = ""
    filename: str | None = None
    """The name of a file; empty if the visitor has chosen none."""

    @property
    def is_file(self) -> bool:
        """True for a file that was chosen; a page cannot contain it."""
        return bool(self.filename)


class Submitted(msgspec.Struct, frozen=True):
    """A form, in the order of its fields."""

    entries: tuple[FormEntry, ...] = ()
    media_type: str = form_body.URLENCODED

    @property
    def files(self) -> tuple[FormEntry, ...]:
        """The files that were chosen."""
        return tuple(entry for entry in self.entries if entry.is_file)

    def values(self, name: str) -> list[str]:
        """Every value of a field."""
        return [entry.value for entry in self.entries if entry.name == name]

    def with_value(self, name: str, value: str) -> Submitted:
        """The same form with one field set, in its place or at the end."""
        field = FormEntry(name=name, value=value)
        entries = tuple(field if entry.name == name else entry for entry in self.entries)
        if field not in entries:
            entries = (*entries, field)
        return msgspec.structs.replace(self, entries=entries)


def read_form(request: HttpRequest, body: Digested) -> Submitted:
    """The form in a body; empty if the body is not a form."""
    content_type = request.value("content-type") or ""
    found = None if body.body is None else form_body.fields(body.body, content_type)
    if found is None:
        return Submitted()
    return Submitted(tuple(map(_entry, found)), form_body.media_type_of(content_type))


def _entry(field: form_body.Field) -> FormEntry:
    name = _decoded(field.name)
    if field.filename is None:
        return FormEntry(name=name, value=(field.value or b"").decode("utf-8", "replace"))
    return FormEntry(name=name, filename=_decoded(field.filename))


def _decoded(latin: str) -> str:
    """A text that is stored as latin-1: browsers send UTF-8."""
    return latin.encode("latin-1").decode("utf-8", "replace")


WAIT: Final = timedelta(seconds=5)
CSRF_FIELDS: Final = (
    "_csrf",
    "_csrf_token",
    "_token",
    "authenticity_token",
    "csrf",
    "csrf_token",
    "csrfmiddlewaretoken",
)
"""Names of CSRF fields, whose values differ from page to page."""

_RULES: Final = KeyRules()
_CLIENT_MADE: Final = KeyRules(format="uuid", normalize="uuid")

log: logging.Logger = logging.getLogger("onefold.web")


class Form:
    """A form whose submissions are keyed."""

    surface: str = "form"

    def __init__(
        self,
        keys: FormKeys | Literal["client"],
        name: str,
        *,
        ignore: tuple[str, ...] = CSRF_FIELDS,
        url: str = "",
        page: Callable[[Problem, HttpRequest, Submitted], HttpResponse | None] | None = None,
    ) -> None:
        """`name` is the name in the keys of its pages.

        With `keys="client"` the browser makes the key: a UUID, new for every page that is opened.
        It proves nothing, so the application needs CSRF protection of its own.

        Fields to `ignore` may change from one submission to the next. `url` is where the form is,
        if it is not where it is submitted to. `page` makes pages of your own, or None for ours.
        """
        if page is not None and not callable(page):
            raise InvalidInput("page", f"must be a function, got {page!r}")
        if not isinstance(keys, FormKeys) and keys != "client":
            raise InvalidInput("keys", f'must be FormKeys(…) or "client", got {keys!r}')
        self._keys = keys if isinstance(keys, FormKeys) else None
        self._field = FIELD if self._keys is None else self._keys.field
        self.name: str = checked_name(name, "form")
        self._ignore = ignore
        self._url = url
        self._own_page = page

    @property
    def keys(self) -> FormKeys:
        """Issues its keys."""
        if self._keys is None:
            raise UsageError("Browsers make the keys of this form: it has keys='client'.")
        return self._keys

    @property
    def options(self) -> dict[str, Any]:
        """Options of the route of this form, which the route can replace."""
        return {
            "fingerprint": Fields(exclude=(self._field, *self._ignore)),
            "retention": MAX_AGE if self._keys is None else self._keys.retention,
            "on_4xx": "release",
            "wait": WAIT,
        }

    def read(
        self, request: HttpRequest, body: Digested, principal: object
    ) -> tuple[str, str] | None:
        """The scope and the key of a submission: from its field, or from the header.

        `principal` is the session that the key belongs to.
        """
        text = self._text(request, body)
        if text is None:
            return None
        found: FormKey | RefusedKey = RefusedKey("other session")
        if isinstance(principal, str) and principal:
            if self._keys is None:
                return f"{self.name}:{digest(principal)}", check_key(text, _CLIENT_MADE)
            found = self._keys.check(text, self.name, principal)
        if isinstance(found, RefusedKey):
            log.info("A key of the form %s was rejected: %s", self.name, found.why)
            is_expired = found.why == "expired"
            raise Refused(make(KEY_EXPIRED) if is_expired else key_invalid("is not valid here"))
        return found.scope, found.id

    def _text(self, request: HttpRequest, body: Digested) -> str | None:
        in_fields = read_form(request, body).values(self._field)
        if len(in_fields) > 1:
            raise Refused(key_invalid("was sent more than once"))
        in_field = next(iter(in_fields), None)
        in_header = read_key(request, _RULES)
        if None not in (in_field, in_header) and in_field != in_header:
            raise Refused(key_invalid("differs between the form and the header"))
        return in_header if in_field is None else in_field

    def page(self, request: HttpRequest, body: Digested, problem: Problem) -> HttpResponse | None:
        """The page for a problem; None for a client that prefers JSON."""
        if not prefers_html(request):
            return None
        form = self._form(request, body, problem)
        if self._own_page is not None:
            own = self._own_page(problem, request, form)
            if own is not None:
                return own
        return page(problem, form, url=self._url)

    def _form(self, request: HttpRequest, body: Digested, problem: Problem) -> Submitted:
        """The submitted fields that a page may contain, and the key for the next submission."""
        if problem.code in (KEY_INVALID.code, KEY_MISSING.code):
            # Another site may have submitted it with the browser of the visitor.
            return Submitted()
        form = read_form(request, body)
        if problem.code not in (KEY_EXPIRED.code, KEY_REUSED.code):
            return form
        old = self._text(request, body)
        assert old is not None, "such a problem is about a key that was checked"
        new = str(uuid4()) if self._keys is None else self._keys.renew(old)
        return form.with_value(self._field, new)
