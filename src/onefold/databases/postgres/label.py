"""A PostgreSQL URL as it may be shown to people."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from onefold.errors import InvalidInput

SECRETS: Final = (
    "password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
)  # fmt: skip
"""The parameters of libpq that are secrets."""
_USER: Final = re.compile(r"\w+://[^@/]*@?")
"""What libpq reads as the user and the password, if it ends with an @."""


def without_password(url: str) -> str:
    """The URL as it may be shown. A command that names it must work, given the password."""
    # The rest of such a password is no password to libpq, and would be shown as a host or a name.
    if "@" in _USER.sub("", url, count=1).partition("?")[0]:
        raise InvalidInput(
            "url", "has an @ too many: a user or a password has %40 for @, %2F for / and %25 for %"
        )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Its own sentence may quote the password.
        raise InvalidInput("url", "is not a PostgreSQL URL that psycopg can read") from None
    for secret in SECRETS:
        parts.pop(secret, None)
    shown = {name: quote(str(value), safe="") for name, value in parts.items()}
    user = f"{shown.pop('user')}@" if "user" in shown else ""
    path = f"/{shown.pop('dbname', '')}"
    # A folder of sockets, or several hosts, cannot stand before the path.
    host = shown.pop("host") if re.fullmatch(r"[\w.-]+", shown.get("host", "")) else ""
    port = f":{shown.pop('port')}" if host and shown.get("port", "").isdigit() else ""
    rest = "&".join(f"{name}={value}" for name, value in shown.items())
    return f"postgresql://{user}{host}{port}{path}{'?' if rest else ''}{rest}"
