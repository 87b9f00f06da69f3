"""Keys as structured fields: items and strings of every kind, as RFC 9651 has them."""

import pytest

from onefold.web.http import HttpRequest
from onefold.web.idempotency.key import KeyRules, read_key
from onefold.web.problems import Refused

STRICT = KeyRules(strict=True)
PRINTABLE = range(0x20, 0x7F)


def read(*lines: str) -> str | None:
    """The key by the strict rules; None where it is refused."""
    headers = tuple(("idempotency-key", line) for line in lines)
    try:
        return read_key(HttpRequest(method="POST", path="/", headers=headers), STRICT)
    except Refused:
        return None


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (['"foo bar"'], "foo bar"),
        (['""'], None),  # a string, and no key (H004)
        ([f'"{"long " * 40}"'], "long " * 40),
        (['"   "'], "   "),
        (['"föö"'], None),
        (['"f\xc3\xbc"'], None),
        (["'foo'"], None),
        (['"foo'], None),
        (['"foo \\"bar\\" \\\\ baz"'], 'foo "bar" \\ baz'),
        (['"foo \\,"'], None),
        (['"foo \\"'], None),
        (['"\\'], None),
        (['"\t"'], None),
        (['" \n "'], None),
        (['"foo', 'bar"'], None),
        (['"foo"', '"bar"'], None),
    ],
)
def test_h007_h008_h016_strings(lines: list[str], key: str | None) -> None:
    assert read(*lines) == key


def test_h009_every_character_in_quotes() -> None:
    accepted = {character: read(f'"{character}"') for character in map(chr, range(256))}

    # A quote would end the string too soon, and a backslash would take the closing one.
    expected = {chr(code) for code in PRINTABLE} - set('"\\')
    assert accepted == {one: one if one in expected else None for one in map(chr, range(256))}


def test_h008_every_character_behind_a_backslash() -> None:
    accepted = {character: read(f'"\\{character}"') for character in map(chr, range(256))}

    assert accepted == {one: one if one in '"\\' else None for one in map(chr, range(256))}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("", None),
        ("   ", None),
        ('  "1"', "1"),
        ('"1"  ', "1"),
        ('\t"1"', None),
        ('"1"\t', None),
        ('"1" "2"', None),
        ('"1",', None),
        ('"1";a', None),
        ("1", None),
        ("tok", None),
        (":aGVsbG8=:", None),
        ("?1", None),
        ("@1659578233", None),
        ('%"f%c3%bc%c3%bc"', None),
        ('("a")', None),
    ],
)
def test_h011_items(line: str, key: str | None) -> None:
    assert read(line) == key
