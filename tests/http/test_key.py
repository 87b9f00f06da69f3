"""The key of a request: what is one, and what is told about what is none."""

import subprocess
import sys
import uuid

import pytest

from onefold import InvalidInput
from onefold.web.http import HttpRequest
from onefold.web.idempotency.key import KeyRules, check_key, read_key
from onefold.web.problems import Problem, Refused

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
STRICT = KeyRules(strict=True)
UUIDS = KeyRules(format="uuid")


def with_key(*values: str, name: str = "idempotency-key") -> HttpRequest:
    return HttpRequest(method="POST", path="/", headers=tuple((name, value) for value in values))


def read(*values: str, rules: KeyRules = KeyRules()) -> str | None:  # noqa: B008, it is frozen
    return read_key(with_key(*values), rules)


def refusal(*values: str, rules: KeyRules = KeyRules()) -> Problem:  # noqa: B008, it is frozen
    with pytest.raises(Refused) as refused:
        read(*values, rules=rules)
    problem = refused.value.problem
    assert (problem.status, problem.code) == (400, "key_invalid")
    return problem


def test_without_the_header_there_is_no_key() -> None:
    assert read_key(HttpRequest(method="POST", path="/"), KeyRules()) is None


@pytest.mark.parametrize("value", ["", " ", "\t"])
@pytest.mark.parametrize("rules", [KeyRules(), STRICT])
def test_h003_a_header_that_is_empty_is_refused(value: str, rules: KeyRules) -> None:
    assert "empty" in refusal(value, rules=rules).detail or rules.strict


@pytest.mark.parametrize("rules", [KeyRules(), STRICT])
def test_h004_so_is_a_quoted_text_of_no_characters(rules: KeyRules) -> None:
    refusal('""', rules=rules)


@pytest.mark.parametrize("rules", [KeyRules(), STRICT])
def test_h005_the_key_is_what_stands_in_the_quotes(rules: KeyRules) -> None:
    assert read(f'"{UUID}"', rules=rules) == UUID


def test_h006_the_same_without_quotes_is_the_same_key_but_for_the_strict() -> None:
    assert read(UUID) == read(f'"{UUID}"')
    refusal(UUID, rules=STRICT)


@pytest.mark.parametrize(
    "value", ["abc", "*a/b:c", "1", "1.5", "?1", ":YWJj:", "@1659578233", "()"]
)
def test_h006_the_strict_take_no_other_kind_of_item(value: str) -> None:
    refusal(value, rules=STRICT)


def test_h007_escapes_are_read_as_what_they_stand_for() -> None:
    assert read(r'"a\"b\\c"') == r'a"b\c'


@pytest.mark.parametrize("rules", [KeyRules(), STRICT])
@pytest.mark.parametrize("value", [r'"foo \,"', '"foo', "'foo'", r'"foo \"', '"a" b', 'a"b', 'a"'])
def test_h008_what_is_quoted_wrongly_is_refused(value: str, rules: KeyRules) -> None:
    refusal(value, rules=rules)


@pytest.mark.parametrize("code", [*range(0x20), 0x7F])
def test_h009_control_characters_are_refused_and_not_repeated(code: int) -> None:
    for value in (f'"a{chr(code)}b"', f"a{chr(code)}b"):
        assert chr(code) not in refusal(value).detail


@pytest.mark.parametrize(
    "value", ['"füü"', '"füü"'.encode().decode("latin-1"), "füü", '"snow☃"', "snow☃", '"\ud800"']
)
def test_h010_what_is_not_ascii_is_refused(value: str) -> None:
    refusal(value)
    refusal(value, rules=STRICT)


@pytest.mark.parametrize("value", [' "abc"', '"abc"  ', '   "abc" '])
def test_h011_spaces_around_a_key_do_not_count(value: str) -> None:
    assert read(value) == "abc"
    assert read(value, rules=STRICT) == "abc"


@pytest.mark.parametrize("value", ['\t"abc"', '"abc"\t'])
def test_h011_tabs_do_for_the_strict(value: str) -> None:
    assert read(value) == "abc"
    refusal(value, rules=STRICT)


@pytest.mark.parametrize("value", ['"abc";v=1', '"abc"; v="x";w', '"abc";v=?0'])
def test_h012_parameters_are_ignored_and_refused_by_the_strict(value: str) -> None:
    assert read(value) == "abc"
    refusal(value, rules=STRICT)


@pytest.mark.parametrize("value", ['"abc";', '"abc";;', '"abc";V=1', '"abc";v="'])
def test_h012_parameters_must_be_some(value: str) -> None:
    refusal(value)


def test_h012_what_follows_a_bare_key_belongs_to_it() -> None:
    assert read("abc;v=1") == "abc;v=1"


@pytest.mark.parametrize(
    "values",
    [
        ('"a"', '"a"'),  # H013
        ('"a"', '"b"'),  # H014
        ('"foo', 'bar"'),  # H016
        ('"a"', ""),
        ("a", "a", "a"),
    ],
)
def test_more_than_one_line_is_refused(values: tuple[str, ...]) -> None:
    assert "more than once" in refusal(*values).detail


@pytest.mark.parametrize("value", ['"a", "b"', '"a","a"', "a, b", "a,b", f"{UUID}, {UUID}"])
def test_h015_what_a_proxy_joined_is_refused(value: str) -> None:
    refusal(value)
    refusal(value, rules=STRICT)


@pytest.mark.parametrize("key", ["k" * 256, "secret" * 100])
def test_h017_a_key_over_the_limit_is_refused_and_not_repeated(key: str) -> None:
    for value in (key, f'"{key}"'):
        problem = refusal(value)
        assert "255" in problem.detail
        assert key[:20] not in str(problem)


def test_h018_a_key_of_just_the_limit_is_accepted() -> None:
    assert read("k" * 255) == "k" * 255
    assert read(f'"{"k" * 255}"') == "k" * 255
    assert read('"' + r"\"" * 255 + '"', rules=STRICT) == '"' * 255


@pytest.mark.parametrize(
    "value", ["k" * 65536, f'"{"k" * 65536}"', '"k"' + ";v" * 32768, '"' * 65536]
)
def test_h019_an_enormous_header_is_refused(value: str) -> None:
    assert len(refusal(value).detail) < 200


@pytest.mark.parametrize(
    "key", ["abc", UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", f"{UUID}0", UUID[:-1]]
)
def test_h020_where_keys_must_be_uuids_another_text_is_refused(key: str) -> None:
    assert "UUID" in refusal(key, rules=UUIDS).detail


@pytest.mark.parametrize("key", [UUID, UUID.upper(), str(uuid.UUID(int=2**128 - 1))])
def test_h020_any_version_of_them_is_accepted(key: str) -> None:
    assert read(key, rules=UUIDS) == key


def test_h021_the_uuid_of_zeros_is_refused() -> None:
    refusal(str(uuid.UUID(int=0)), rules=UUIDS)


def test_h022_two_spellings_of_a_uuid_are_one_key_only_where_the_rules_say_so() -> None:
    one_key = KeyRules(normalize="uuid")

    assert read(UUID.upper(), rules=one_key) == read(UUID, rules=one_key) == UUID
    assert read(UUID.upper(), rules=UUIDS) != read(UUID, rules=UUIDS)
    assert read("ABC", rules=one_key) == "ABC"


def test_h023_keys_that_differ_by_case_are_two() -> None:
    assert read("abc") != read("ABC")


@pytest.mark.parametrize("name", ["Idempotency-Key", "IDEMPOTENCY-KEY", "idempotency-key"])
def test_h024_the_rules_name_the_header_in_any_case(name: str) -> None:
    assert read("abc", rules=KeyRules(headers=(name,))) == "abc"


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


def test_a_header_that_the_rules_do_not_name_is_no_key() -> None:
    assert read_key(with_key("abc", name="x-idempotency-key"), KeyRules()) is None


@pytest.mark.parametrize(
    "key",
    ["a:b", "a/b", "100%", "*", "{}", "it's", "';--", "[a-z]?", "a\\b", "../..", "$(id)", "a|b"],
)
def test_h026_a_key_may_look_like_anything_and_means_itself(key: str) -> None:
    escaped = key.replace("\\", "\\\\")
    quoted = read(f'"{escaped}"')

    assert quoted == key
    assert key.startswith("'") or read(key) == key


def test_h027_short_keys_are_allowed_unless_the_rules_demand_longer_ones() -> None:
    assert read("1") == "1"
    assert "16 to 255" in refusal("test", rules=KeyRules(min_length=16)).detail
    assert read("x" * 16, rules=KeyRules(min_length=16)) == "x" * 16


def test_a_key_that_stood_elsewhere_is_checked_alike() -> None:
    assert check_key(UUID.upper(), KeyRules(format="uuid", normalize="uuid")) == UUID
    with pytest.raises(Refused):
        check_key("", KeyRules())


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


def test_without_the_parser_of_structured_fields_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['http_sf'] = None; import onefold.web.idempotency.key"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert "pip install 'onefold[http]'" in done.stderr
