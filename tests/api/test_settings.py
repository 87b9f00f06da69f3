"""What an Onefold object is made with: refused by name, and nothing secret is repeated."""

from typing import Any

import pytest

from onefold import InvalidInput, Onefold


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("url", {"url": None}),
        ("url", {"url": b"sqlite:///app.db"}),
        ("clock", {"clock": 5}),
        ("schema", {"schema": "pg_onefold"}),
        ("busy_timeout", {"busy_timeout": 5}),
    ],
)
def test_a_bad_setting_is_refused_by_name(field: str, settings: dict[str, Any]) -> None:
    given: dict[str, Any] = {"url": "sqlite:///app.db", **settings}

    with pytest.raises(InvalidInput) as caught:
        Onefold(**given)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://u:secret@h/db", "got the scheme 'postgresql+psycopg'"),
        ("MYSQL://u:secret@h/db", "got the scheme 'MYSQL'"),
        ("host=h password=secret", "got none"),
        ("password=secret:1", "got none"),
        ("secret", "got none"),
        ("", "got none"),
    ],
)
def test_of_a_url_that_is_refused_only_the_scheme_is_shown(url: str, shown: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Onefold(url)

    assert caught.value.field == "url"
    assert str(caught.value).endswith(shown)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["p@secret", "p/secret", "p:/@secret"])
def test_a_password_that_is_not_escaped_is_refused(password: str) -> None:
    """PostgreSQL's library takes the rest of it for a host, a port or the name of the database."""
    with pytest.raises(InvalidInput, match="url has an @ too many") as caught:
        Onefold(f"postgresql://u:{password}@127.0.0.1:1/db")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u%40h:p%40%2F@h/db%40x",
        "postgresql://u:p?p@h/db",
        "postgresql:///db?user=u@h",
        "postgresql:///db?host=/tmp/a@b",
    ],
)
def test_an_at_that_is_escaped_or_a_parameter_is_accepted(url: str) -> None:
    Onefold(url).close()


@pytest.mark.parametrize("tenant", [[], 5])
def test_a_tenant_to_erase_is_refused_by_name(sqlite_url: str, tenant: Any) -> None:
    with Onefold(sqlite_url) as onefold, pytest.raises(InvalidInput) as caught:
        onefold.keys.erase(tenant=tenant)

    assert caught.value.field == "tenant"
