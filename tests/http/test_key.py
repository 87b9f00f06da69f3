"""The key of a request: what is one, and what is told about what is none.

Quoted texts are structured fields, as RFC 9651 has them.
"""

import uuid

import pytest

from onefold import InvalidInput
from onefold.web.http import HttpRequest
from onefold.web.idempotency.key import KeyRules, read_key
from onefold.web.problems import Problem, Refused

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
LAX, STRICT, UUIDS = KeyRules(), KeyRules(strict=True), KeyRules(format="uuid")
NONE = None, None


def with_key(*values: str, name: str = "idempotency-key") -> HttpRequest:
    return HttpRequest(method="POST", path="/", headers=tuple((name, value) for value in values))


def read(*values: str, rules: KeyRules = LAX) -> str | None:
    """The key; None where it is refused."""
    try:
        return read_key(with_key(*values), rules)
    except Refused:
        return None


def refusal(*values: str, rules: KeyRules = LAX) -> Problem:
    with pytest.raises(Refused) as refused:
        read_key(with_key(*values), rules)
    problem = refused.value.problem
    assert (problem.status, problem.code) == (400, "key_invalid")
    return problem


CASES: list[tuple[list[str], tuple[str | None, str | None]]] = [
    *[([value], NONE) for value in ("", " ", "\t", "   ")],  # H003
    (['""'], NONE),  # H004
    ([f'"{UUID}"'], (UUID, UUID)),  # H005
    ([UUID], (UUID, None)),  # H006
    *[([value], (value, None)) for value in ("abc", "*a/b:c", "1", "1.5", "?1", "tok")],
    *[([value], (value, None)) for value in (":YWJj:", "@1659578233", "()")],
    ([r'"a\"b\\c"'], (r'a"b\c', r'a"b\c')),  # H007
    (['"foo \\"bar\\" \\\\ baz"'], ('foo "bar" \\ baz', 'foo "bar" \\ baz')),
    (['"foo bar"'], ("foo bar", "foo bar")),
    ([f'"{"long " * 40}"'], ("long " * 40, "long " * 40)),
    (['"   "'], ("   ", "   ")),
    *[([value], NONE) for value in (r'"foo \,"', '"foo', "'foo'", r'"foo \"', '"\\')],  # H008
    *[([value], NONE) for value in ('%"f%c3%bc"', '"a" b', 'a"b', 'a"', '"1" "2"', '"1",')],
    *[([value], NONE) for value in ('"\t"', '" \n "')],  # H009
    *[([value], NONE) for value in ('"füü"', '"f\xc3\xbc"', "füü", '"snow☃"', '"\ud800"')],  # H010
    *[([value], ("abc", "abc")) for value in (' "abc"', '"abc"  ', '   "abc" ')],  # H011
    *[([value], ("abc", None)) for value in ('\t"abc"', '"abc"\t')],
    *[([value], ("abc", None)) for value in ('"abc";v=1', '"abc"; v="x";w', '"abc";v=?0')],  # H012
    *[([value], NONE) for value in ('"abc";', '"abc";;', '"abc";V=1', '"abc";v="')],
    (["abc;v=1"], ("abc;v=1", None)),  # what follows a bare key belongs to it
    (['"a"', '"a"'], NONE),  # H013
    (['"a"', '"b"'], NONE),  # H014
    (['"foo', 'bar"'], NONE),  # H016
    *[
        ([value], NONE) for value in ('"a", "b"', '"a","a"', "a, b", "a,b", f"{UUID}, {UUID}")
    ],  # H015
]


@pytest.mark.parametrize(("lines", "keys"), CASES)
def test_h003_to_h016_what_is_a_key(lines: list[str], keys: tuple[str | None, str | None]) -> None:
    """By the rules that most follow, and by the strict ones."""
    assert (read(*lines), read(*lines, rules=STRICT)) == keys
    if keys == NONE:
        refusal(*lines)
        refusal(*lines, rules=STRICT)


def test_h009_every_character_in_quotes_and_behind_a_backslash() -> None:
    quoted = {one for one in map(chr, range(256)) if read(f'"{one}"', rules=STRICT) == one}
    escaped = {one for one in map(chr, range(256)) if read(f'"\\{one}"', rules=STRICT) == one}

    # A quote would end the string too soon, and a backslash would take the closing one.
    assert quoted == {chr(code) for code in range(0x20, 0x7F)} - set('"\\')
    assert escaped == set('"\\')


@pytest.mark.parametrize("code", [*range(0x20), 0x7F])
def test_h009_control_characters_are_refused_and_not_repeated(code: int) -> None:
    for value in (f'"a{chr(code)}b"', f"a{chr(code)}b"):
        assert chr(code) not in refusal(value).detail


def test_a_refusal_says_what_is_wrong() -> None:
    assert "empty" in refusal("").detail
    assert "more than once" in refusal('"a"', "").detail
    for key in ("k" * 256, "secret" * 100):  # H017
        for value in (key, f'"{key}"'):
            assert "255" in refusal(value).detail
            assert key[:20] not in str(refusal(value))
    for value in ("k" * 65536, f'"{"k" * 65536}"', '"k"' + ";v" * 32768, '"' * 65536):  # H019
        assert len(refusal(value).detail) < 200


def test_h018_a_key_of_just_the_limit_is_accepted() -> None:
    assert read("k" * 255) == read(f'"{"k" * 255}"') == "k" * 255
    assert read('"' + r"\"" * 255 + '"', rules=STRICT) == '"' * 255


def test_h020_h021_where_keys_must_be_uuids_another_text_is_refused() -> None:
    others = [
        "abc",
        UUID.replace("-", ""),
        f"{{{UUID}}}",
        f"urn:uuid:{UUID}",
        f"{UUID}0",
        UUID[:-1],
    ]
    for key in (*others, str(uuid.UUID(int=0))):
        assert "UUID" in refusal(key, rules=UUIDS).detail
    for key in (UUID, UUID.upper(), str(uuid.UUID(int=2**128 - 1))):
        assert read(key, rules=UUIDS) == key


def test_h022_two_spellings_of_a_uuid_are_one_key_only_where_the_rules_say_so() -> None:
    one_key = KeyRules(normalize="uuid")

    assert read(UUID.upper(), rules=one_key) == read(UUID, rules=one_key) == UUID
    assert read(UUID.upper(), rules=UUIDS) != read(UUID, rules=UUIDS)
    assert read("ABC", rules=one_key) == "ABC"


def test_h024_the_rules_name_the_header_in_any_case() -> None:
    for name in ("Idempotency-Key", "IDEMPOTENCY-KEY", "idempotency-key"):
        assert read("abc", rules=KeyRules(headers=(name,))) == "abc"
    assert read_key(with_key("abc", name="x-idempotency-key"), LAX) is None


def test_h025_of_several_headers_those_that_are_there_must_agree() -> None:
    rules = KeyRules(headers=("Idempotency-Key", "PayPal-Request-Id", "X-Idempotency-Key"))

    def both(first: str, second: str) -> HttpRequest:
        headers = (("idempotency-key", first), ("paypal-request-id", second))
        return HttpRequest(method="POST", path="/", headers=headers)

    assert read_key(with_key("abc", name="x-idempotency-key"), rules) == "abc"
    assert read_key(both('"abc"', "abc"), rules) == "abc"
    for request in (both("abc", "abd"), both("abc", ""), both("", "")):
        with pytest.raises(Refused):
            read_key(request, rules)


def test_h027_short_keys_are_allowed_unless_the_rules_demand_longer_ones() -> None:
    assert read("1") == "1"
    assert "16 to 255" in refusal("test", rules=KeyRules(min_length=16)).detail
    assert read("x" * 16, rules=KeyRules(min_length=16)) == "x" * 16


@pytest.mark.parametrize(
    "rules",
    [
        {"headers": ()},
        {"headers": ("Idempotency Key",)},
        {"headers": ("",)},
        {"headers": "Idempotency-Key"},
        {"min_length": 0},
        {"min_length": 10, "max_length": 9},
        {"max_length": 513},
    ],
)
def test_rules_that_no_key_can_follow_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        KeyRules(**rules)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
