"""What may be called what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from collections.abc import Callable

unicode = st.characters(exclude_categories=["Cs"])


@pytest.mark.parametrize(
    "value",
    ["a", "...", ".a", "stripe.process", "e-mail:send/now", "Größe 1", "🚚", "x" * 200, "ß" * 200],
)
def test_a_name_may_have_up_to_200_characters_of_any_script(value: str) -> None:
    assert checks.name(value, "kind") == value


@pytest.mark.parametrize("forbidden", [*",*?[]{}\\", "\x00", "\n", "\x1f", "\x7f", "\x80", "\x9f"])
def test_a_name_must_not_contain(forbidden: str) -> None:
    with pytest.raises(InvalidInput, match="queue must not contain") as caught:
        checks.name(f"a{forbidden}b", "queue")

    assert repr(forbidden) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "must have 1 to 200 characters, got 0"),
        ("x" * 201, "must have 1 to 200 characters, got 201"),
        ("a\ud800", "must be valid Unicode, got 'a\\ud800'"),
        (7, "must be a string, got 7"),
        (None, "must be a string, got None"),
        (b"kind", "must be a string, got b'kind'"),
        (".", "must not be '.', which is lost on its way in a URL"),
        ("..", "must not be '..', which is lost on its way in a URL"),
    ],
)
def test_a_name_that_cannot_be_stored_is_refused(value: object, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checks.name(value, "kind")

    assert (caught.value.field, caught.value.reason) == ("kind", reason)


@pytest.mark.parametrize(
    ("queue", "parts"),
    [
        ("payments", ("", "payments")),
        ("{acme}payments", ("acme", "payments")),
        ("{a.b-c_1}" + "ß" * 200, ("a.b-c_1", "ß" * 200)),
        ("{" + "a" * 64 + "}x", ("a" * 64, "x")),
    ],
)
def test_a_queue_may_be_a_tenants(queue: str, parts: tuple[str, str]) -> None:
    assert checks.queue(queue, "queue") == queue
    assert checks.parted(queue) == parts


@pytest.mark.parametrize(
    "queue",
    ["{}x", "{Acme}x", "{-a}x", "{acme}", "{acme}{b}x", "{acme}a,b", "{" + "a" * 65 + "}x",
     "{acme}" + "x" * 201, "x{acme}", "{acme", 7],
)  # fmt: skip
def test_braces_in_a_queue_are_a_tenants_alone(queue: object) -> None:
    with pytest.raises(InvalidInput, match="queue must"):
        checks.queue(queue, "queue")


@pytest.mark.parametrize("value", ["", "Acme", "a" * 65, ".a", "a b", None])
def test_a_tenant_of_the_server_is_a_slug(value: object) -> None:
    with pytest.raises(InvalidInput, match="tenant must be 1 to 64 lower-case"):
        checks.tenant(value, "tenant")


def test_a_refused_name_is_refused_again() -> None:
    for field in ("kind", "queue"):
        for _ in range(2):
            with pytest.raises(InvalidInput) as caught:
                checks.name("a,b", field)
            assert caught.value.field == field


@given(st.text(unicode, min_size=1, max_size=128).filter(lambda text: "\x00" not in text))
def test_a_key_is_any_text_but_nul(value: str) -> None:
    assert checks.key(value, "unique_key") == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "must not be empty"),
        ("a\x00b", "must not contain NUL, got 'a\\x00b'"),
        ("x" * 513, "must have at most 512 bytes, got 513"),
        ("ß" * 257, "must have at most 512 bytes, got 514"),
        ("\udfff", "must be valid Unicode, got '\\udfff'"),
        (7, "must be a string, got 7"),
    ],
)
def test_a_key_that_cannot_be_stored_is_refused(value: object, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checks.key(value, "unique_key")

    assert (caught.value.field, caught.value.reason) == ("unique_key", reason)


def test_a_key_may_fill_its_bytes() -> None:
    assert checks.key("x" * 512, "key")
    assert checks.key("ß" * 256, "key")
    assert checks.key("x" * 20, "key", longest=20)


def test_text_may_be_empty() -> None:
    assert checks.text("", "tenant") == ""
    with pytest.raises(InvalidInput, match="tenant must be a string, got None"):
        checks.text(None, "tenant")


@pytest.mark.parametrize("check", [checks.key, checks.text])
def test_a_length_may_be_given(check: Callable[..., str]) -> None:
    with pytest.raises(InvalidInput, match="reason must have at most 3 bytes, got 4"):
        check("four", "reason", longest=3)


@pytest.mark.parametrize("value", ["onefold", "_", "app_2", "x" * 63])
def test_a_schema_is_named_as_it_is_spelled_without_quotes(value: str) -> None:
    assert checks.schema(value, "schema") == value


@pytest.mark.parametrize("value", ["", "Onefold", "2app", "a-b", 'a"b', "x" * 64, "a\n", None, 1])
def test_a_schema_that_would_need_quotes_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="schema must be lower-case letters, digits and under"):
        checks.schema(value, "schema")


@pytest.mark.parametrize("value", ["pg_", "pg_catalog", "pg_onefold"])
def test_a_schema_that_postgresql_keeps_for_itself_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="schema must not begin with pg_"):
        checks.schema(value, "schema")


def test_a_schema_may_begin_with_pg() -> None:
    assert checks.schema("pgqueue", "schema") == "pgqueue"
