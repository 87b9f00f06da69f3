"""`BadSignature`: a request that is not, or no longer, the sender's. The sender is not told why."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from onefold.errors import OnefoldError

Code: TypeAlias = Literal[
    "header_missing",
    "header_repeated",
    "header_malformed",
    "id_malformed",
    "timestamp_malformed",
    "too_old",
    "too_new",
    "no_usable_scheme",
    "no_match",
    "secret_expired",
    "body_unbound",
]

_WORDS: Final[dict[str, str]] = {
    "header_missing": "a header that its signature needs is missing or empty",
    "header_repeated": "a header has several values that differ",
    "header_malformed": "its signature cannot be read",
    "id_malformed": "its id would make what was signed ambiguous",
    "timestamp_malformed": "its timestamp is no whole number of seconds",
    "too_old": "it was signed longer ago than tolerated; or the clock of this machine is ahead",
    "too_new": "it was signed later than tolerated; or the clock of this machine is behind",
    "no_usable_scheme": "it has no signature of a kind that the secrets given here can check",
    "no_match": (
        "no signature fits any secret. Either the secret given here is not the one of this very"
        " endpoint, or something has changed the body on its way"
    ),
    "secret_expired": "it is signed with a secret that has expired",
    "body_unbound": "nothing that was signed says what its body is",
}


def why(code: str) -> str:
    """The words of a code, for logs; the code where it has none."""
    return _WORDS.get(code, code)


class BadSignature(OnefoldError):
    """The request is refused before anything is stored. `code` is for metrics and logs."""

    status = 401
    provider: str
    code: Code

    def __init__(self, code: Code, *, provider: str = "", header: str | None = None) -> None:
        """`header` names the one it is about; no value of any is kept."""
        about = "" if header is None else f" ({header})"
        super().__init__(
            f"The webhook is refused: {_WORDS[code]}{about}.",
            code=code,
            provider=provider,
            header=header,
        )

    header: str | None
