"""Who is let in, as whom, and what the others are told."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput, Onefold
from onefold.server.auth import ANONYMOUS, PUBLIC, Authority, Caller, is_loopback
from onefold.web.problems import Problem, Refused
from tests.fixtures.place import Place

LOCAL = ("127.0.0.1", 50000)
WRONG = "of_k3v6w2qz5x7n4m2a_" + "0aZ" * 14 + "9"


def ask(
    onefold: Onefold,
    headers: Mapping[str, str] | None = None,
    *,
    needs: str | None = "publish",
    anonymous: bool = False,
    method: str = "POST",
    client: Any = LOCAL,
    version: str = "1.1",
) -> Caller | Problem:
    """What a server answers to who asks for something that needs a scope."""

    async def admit() -> Caller:
        authority = Authority(onefold, anonymous=anonymous)
        scope = {"type": "http", "method": method, "client": client, "http_version": version}
        try:
            return await authority.admit(needs, headers or {}, scope)
        finally:
            await onefold.aclose()

    try:
        return asyncio.run(admit())
    except Refused as refused:
        return refused.problem


def asked(place: Place, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
    with place.open() as onefold:
        return ask(onefold, headers, **options)


def shown(text: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {text}"}


def made(place: Place, tenant: str = "acme", **options: Any) -> str:
    options.setdefault("scopes", ["publish"])
    with place.open() as onefold:
        return onefold.api_keys.create(tenant, **options).text


def test_a_key_says_who_asks_and_for_whom(place: Place) -> None:
    key = made(place, scopes=["publish", "work"])

    caller = asked(place, shown(key))

    assert caller == Caller("acme", key.split("_")[1], frozenset({"publish", "work"}))
    assert asked(place, shown(key, "bearer")) == caller
    assert asked(place, shown(key, " BEARER ")) == caller


def test_whatever_is_wrong_with_a_key_the_answer_is_the_same(place: Place) -> None:
    key = made(place)
    with place.open() as onefold:
        revoked = onefold.api_keys.create("acme", scopes=["admin"])
        onefold.api_keys.revoke(revoked.key.id)
        expired = onefold.api_keys.create(scopes=["admin"], expires_in=timedelta(microseconds=1))

    wrong: list[dict[str, str]] = [
        {},
        {"authorization": ""},
        {"authorization": key},
        shown(key, "Basic"),
        shown(""),
        shown("anything"),
        shown(WRONG),
        shown(key[:-1] + ("0" if key[-1] != "0" else "1")),
        shown(key + ", Bearer " + key),
        shown(revoked.text),
        shown(expired.text),
        shown("\0\udcff"),
    ]
    answers = [asked(place, headers) for headers in wrong]
    # A server on loopback has no other words, once there is a key.
    answers += [asked(place, headers, anonymous=True) for headers in wrong]

    assert {(type(answer), answer.status, answer.code) for answer in answers} == {
        (Problem, 401, "unauthenticated")
    }
    assert len({repr(answer) for answer in answers}) == 1
    assert "of_k3v6" not in repr(answers[0])


def test_no_scope_is_open_but_the_keys_own(place: Place) -> None:
    keys = {scope: made(place, scopes=[scope]) for scope in ("publish", "work", "admin")}

    allowed = {
        (has, needs, method)
        for has, key in keys.items()
        for needs in keys
        for method in ("GET", "POST")
        if isinstance(asked(place, shown(key), needs=needs, method=method), Caller)
    }
    refused = asked(place, shown(keys["publish"]), needs="work")

    writes = {(has, needs) for has, needs, method in allowed if method == "POST"}
    assert writes == {
        ("publish", "publish"),
        ("work", "work"),
        ("admin", "publish"),
        ("admin", "work"),
        ("admin", "admin"),
    }
    # Who works on jobs may look at them, as who publishes them may.
    reads = {(has, needs) for has, needs, method in allowed if method == "GET"}
    assert reads - writes == {("work", "publish")}
    assert (refused.status, refused.code, refused.extra) == (403, "forbidden", {"scope": "work"})
    assert "does not have the scope 'work'" in refused.detail


def test_what_is_open_to_all_asks_for_nothing_and_all_else_is_charged(place: Place) -> None:
    key = made(place, rate="1/h")

    assert [asked(place, shown(key), needs=None) for _ in range(3)] == [PUBLIC] * 3
    assert asked(place, shown(WRONG), needs=None, method="GET") == PUBLIC
    # And a refused scope is a request too.
    assert asked(place, shown(key), needs="admin").status == 403
    assert asked(place, shown(key)).status == 429


# --- without keys ---------------------------------------------------------------------------------


def test_without_keys_only_a_server_on_loopback_lets_anybody_in(place: Place) -> None:
    for headers in ({}, shown("anything"), shown(WRONG), shown("x", "Basic")):
        assert asked(place, headers, anonymous=True, needs="admin") == ANONYMOUS
        assert asked(place, headers, anonymous=False, needs="publish").status == 401


def test_the_first_key_closes_the_door(place: Place) -> None:
    with place.open() as onefold:

        async def in_one_loop() -> list[Any]:
            authority = Authority(onefold, anonymous=True)
            seen: list[Any] = []
            for turn in range(3):
                try:
                    seen.append(await authority.admit("admin", {}, {"method": "POST"}))
                except Refused as refused:
                    seen.append(refused.problem.status)
                if turn == 0:
                    made_now = await onefold.api_keys.acreate(scopes=["admin"])
                    seen.append(
                        await authority.admit("admin", shown(made_now.text), {"method": "POST"})
                    )
                    await onefold.api_keys.arevoke(made_now.key.id)
            await onefold.aclose()
            return seen

        first, keyed, *rest = asyncio.run(in_one_loop())

    assert first == ANONYMOUS
    assert keyed.principal != "anonymous"
    # And to revoke the last one does not open it again.
    assert rest == [401, 401]


def test_a_key_that_was_made_elsewhere_just_now_is_never_nobodys(place: Place) -> None:
    """Its jobs would be stored for nobody in particular."""
    with place.open() as onefold, place.open() as elsewhere:
        assert onefold.api_keys.exist() is False
        key = elsewhere.api_keys.create("acme", scopes=["publish"])

        caller = ask(onefold, shown(key.text), anonymous=True)

    assert isinstance(caller, Caller)
    assert caller.tenant == "acme"


HERE = ["localhost", "LOCALHOST:7890", "127.0.0.1", "127.9.9.9:80", "[::1]:7890", "api.localhost"]
ELSEWHERE = [
    "example.com", "localhost.example.com", "127.0.0.1.nip.io", "10.0.0.1", "0.0.0.0", "[::]",
    "169.254.169.254", "2130706433", "0x7f.1", "127.1", "", "[::ffff:10.0.0.1]",
]  # fmt: skip
NO_HOSTS = [
    "localhost@example.com", "[::1", "127.0.0.1:x@evil", "evil.com#localhost", "evil.com/localhost",
    "localhost:abc", "localhost/evil", "localhost, example.com", "localhost:7890:7890",
    "localhost ", "localhost:\u0667", "[localhost]",
]  # fmt: skip


def test_a_browser_may_come_by_a_name_of_this_machine_and_by_no_other(sqlite_url: str) -> None:
    """DNS rebinding: a page of another site whose name has become this machine's address."""
    place = Place(sqlite_url)
    for host in HERE:
        headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        assert asked(place, headers, anonymous=True) == ANONYMOUS, host
    for host in ELSEWHERE:
        by_host = asked(place, {"host": host}, anonymous=True)
        headers = {"host": "localhost", "origin": f"https://{host}"}
        assert (by_host.status, by_host.code) == (403, "forbidden"), host
        assert asked(place, headers, anonymous=True).status == 403, host
    for host in NO_HOSTS:
        with pytest.raises(InvalidInput, match="Host must be a host and a port"):
            asked(place, {"host": host}, anonymous=True)


PROXIES = [
    "cdn-loop", "cf-ray", "client-ip", "forwarded", "proxy-connection", "true-client-ip", "via",
    "x-client-ip", "x-envoy-attempt-count", "x-forwarded", "x-forwarded-for", "x-forwarded-host",
    "x-forwarded-proto", "x-original-forwarded-for", "x-original-url", "x-real-ip", "x-varnish",
]  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site"},
        *({name: "1"} for name in PROXIES),
    ],
)
def test_what_comes_for_another_site_or_through_a_proxy_is_refused(
    sqlite_url: str, headers: dict[str, str]
) -> None:
    refused = asked(Place(sqlite_url), {"host": "localhost", **headers}, anonymous=True)

    assert refused.status == 403
    assert "onefold apikeys create" in refused.detail


@pytest.mark.parametrize("version", ["1", "1.0"])
def test_what_comes_by_http_1_0_is_taken_for_a_proxys(sqlite_url: str, version: str) -> None:
    """As nginx sends it, with the Host of the server and no header of its own."""
    place, headers = Place(sqlite_url), {"host": "127.0.0.1:7890", "connection": "close"}

    assert asked(place, headers, anonymous=True) == ANONYMOUS
    assert asked(place, headers, anonymous=True, version=version).status == 403
    assert isinstance(asked(place, shown(made(place)), anonymous=True, version=version), Caller)


def test_another_machine_is_refused_whatever_it_says(sqlite_url: str) -> None:
    place, headers = Place(sqlite_url), {"host": "localhost"}

    assert asked(place, headers, anonymous=True, client=("192.0.2.1", 1)).status == 403
    assert asked(place, headers, anonymous=True, client=("::1", 1)) == ANONYMOUS
    assert asked(place, headers, anonymous=True, client=None) == ANONYMOUS


def test_with_a_key_nobody_is_asked_where_they_come_from(place: Place) -> None:
    headers = {
        **shown(made(place)),
        "host": "jobs.example.com",
        "origin": "https://example.com",
        "x-forwarded-for": "203.0.113.7",
    }

    assert isinstance(asked(place, headers, client=("192.0.2.1", 1)), Caller)
    assert isinstance(asked(place, headers, anonymous=True, client=("192.0.2.1", 1)), Caller)


def test_some_addresses_can_be_reached_by_this_machine_alone() -> None:
    own = ["127.0.0.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
    others = ["0.0.0.0", "::", "", "192.168.1.5", "example.com", "*"]

    assert [host for host in (*own, *others) if is_loopback(host)] == own
