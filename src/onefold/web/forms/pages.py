"""Pages for submissions that are rejected or replayed.

A page that submits again has the same fields in the same order and encoding, so that the retry is
the same request. Only a visitor with a valid key of this session gets such a page: otherwise
another site could prepare a submission.
"""

from __future__ import annotations

import secrets
from html import escape
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from onefold.web.forms.form_keys import hidden_input
from onefold.web.http import HttpResponse
from onefold.web.problems import (
    ATTEMPT_FAILED,
    CONFLICT_RETRY,
    IN_PROGRESS,
    KEY_EXPIRED,
    KEY_REUSED,
    LEASE_LOST,
    NOT_RECORDED,
    OUTCOME_UNKNOWN,
    RESPONSE_NOT_KEPT,
    TOO_LARGE,
    UNAVAILABLE,
)

if TYPE_CHECKING:
    from onefold.web.forms.form import FormEntry, Submitted
    from onefold.web.http import Header
    from onefold.web.problems import Problem

Then: TypeAlias = Literal["look again", "submit as new", "open again", "nothing"]
"""What a visitor can do next."""

SOON: Final = 2
"""Seconds until a page looks again. A lease may have a minute left and its handler a moment."""


class Words(msgspec.Struct, frozen=True):
    """The text of a page."""

    title: str
    text: str
    then: Then
    button: str = ""


_AGAIN: Final = Words(
    "Please try again",
    "This could not be done just now. It is safe to submit it again: it will be done once.",
    "look again",
    "Try again",
)
_REFUSED: Final = Words(
    "Please open the form again",
    "Nothing was done: the form that you submitted does not belong to this visit.",
    "open again",
    "Open the form",
)
_WORDS: Final[dict[str, Words]] = {
    IN_PROGRESS.code: Words(
        "We are working on it",
        "What you submitted is being worked on. You do not need to submit it again.",
        "look again",
        "Look again",
    ),
    LEASE_LOST.code: _AGAIN,
    CONFLICT_RETRY.code: _AGAIN,
    UNAVAILABLE.code: _AGAIN,
    NOT_RECORDED.code: Words(
        "Please look again",
        "What you submitted may have been done; we cannot tell just now. Look again in a moment,"
        " and do not submit it as something new.",
        "look again",
        "Look again",
    ),
    KEY_REUSED.code: Words(
        "You have submitted this form before",
        "It was submitted with other contents, and that stands. Nothing was done now. If you mean"
        " this as another one, submit it as new.",
        "submit as new",
        "Submit as new",
    ),
    KEY_EXPIRED.code: Words(
        "This form was open for too long",
        "Nothing was done now, and nothing of what you entered is lost. Submit it, if you still"
        " mean it and have not submitted it before.",
        "submit as new",
        "Submit",
    ),
    OUTCOME_UNKNOWN.code: Words(
        "We are checking",
        "What you submitted did not come to its end, and we are finding out how far it came. Please"
        " do not submit it again: it may have been done.",
        "nothing",
    ),
    ATTEMPT_FAILED.code: Words(
        "This went wrong",
        "What you submitted may have been done in part. Please do not submit it again before that"
        " has been found out.",
        "nothing",
    ),
    RESPONSE_NOT_KEPT.code: Words(
        "This is done",
        "What you submitted was done, once. The page that confirmed it is no longer stored.",
        "nothing",
    ),
    TOO_LARGE.code: Words(
        "This is too much",
        "Nothing was done: what you submitted is too large.",
        "open again",
        "Open the form",
    ),
}

_STYLE: Final = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}button{font:inherit;padding:.5rem 1rem}label{display:block;"
    "margin:1rem 0}@media(prefers-color-scheme:dark){body{color:#eee;background:#1a1a1a}"
    "a{color:#9cf}}"
)
_SECURITY: Final = (
    "default-src 'none'; base-uri 'none'; frame-ancestors 'self'; script-src 'nonce-$nonce';"
    " style-src 'nonce-$nonce'"
)
# Not form.submit(): a field of that name would stand in its place.
_SUBMIT: Final = "HTMLFormElement.prototype.submit.call(document.forms[0])"


def page(problem: Problem, form: Submitted, *, url: str = "") -> HttpResponse:
    """The page that stands for a problem. `form` has the key to submit with.

    `url` is where the form is; an empty one is the URL that it was submitted to.
    """
    words = _WORDS.get(problem.code, _REFUSED)
    nonce = secrets.token_urlsafe(16)
    inner = _next(words, form, url)
    if problem.retry_after is not None and words.then == "look again" and not form.files:
        seconds = min(problem.retry_after, SOON)
        script = f"setTimeout(function(){{{_SUBMIT}}},{seconds * 1000})"
        inner += "<p>This page looks again by itself.</p>\n"
        inner += f'<script nonce="{nonce}">{script}</script>\n'
    body = _document(words, inner, nonce).encode()
    return HttpResponse(problem.status, _headers(problem, body, nonce), body)


def _document(words: Words, inner: str, nonce: str) -> str:
    title, text = escape(words.title), escape(words.text)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n"
        f'<style nonce="{nonce}">{_STYLE}</style>\n</head>\n<body>\n<main>\n'
        f'<h1>{title}</h1>\n<p role="status">{text}</p>\n{inner}</main>\n</body>\n</html>\n'
    )


def _headers(problem: Problem, body: bytes, nonce: str) -> tuple[Header, ...]:
    headers: list[Header] = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("Vary", "Accept"),
        # No form-action: the response to the form may redirect anywhere, such as to a payment page.
        ("Content-Security-Policy", _SECURITY.replace("$nonce", nonce)),
    ]
    if problem.retry_after is not None:
        headers.append(("Retry-After", str(problem.retry_after)))
    return tuple(headers)


def _next(words: Words, form: Submitted, url: str) -> str:
    match words.then:
        case "nothing":
            return ""
        case "open again":
            return f'<p><a href="{escape(url)}">{escape(words.button)}</a></p>\n'
        case "look again" if form.files:
            return (
                "<p>Reload this page to look again. Your browser will ask whether to submit the"
                " form once more: it is safe to say yes.</p>\n"
            )
        case "look again" | "submit as new":
            return _form(form, words.button)


def _form(form: Submitted, button: str) -> str:
    # Without an action, it is submitted to the URL of this page.
    fields = "".join(_field(entry, place) for place, entry in enumerate(form.entries))
    return (
        f'<form method="post" enctype="{escape(form.media_type)}">\n{fields}'
        f"<button>{escape(button)}</button>\n</form>\n"
    )


def _field(entry: FormEntry, place: int) -> str:
    name = escape(entry.name)
    if entry.filename is None:
        # HTML ignores a carriage return that is not escaped.
        return hidden_input(entry.name, entry.value).replace("\r", "&#13;") + "\n"
    if not entry.filename:
        # A browser sends a file field that is empty, too: it is part of the request.
        return f'<input type="file" name="{name}" hidden>\n'
    return (
        f'<label for="file{place}">Please choose the file {escape(entry.filename)} again:\n'
        f'<input type="file" id="file{place}" name="{name}" required></label>\n'
    )
