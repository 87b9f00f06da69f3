"""Plain ASGI: a table of routes around an application that we know nothing of."""

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from onefold import Onefold
from onefold.web.asgi import Idempotency
from tests.fixtures.connections import Effects
from tests.http.apps_talk import Talk, part, visited

SETTLED = 1


async def paid(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("paid")(scope, receive, send)


async def caller(_scope: Any) -> str:
    return "alice"


async def asked(app: Any, path: str, **options: Any) -> Talk:
    (talk,) = await visited(app, b"", path=path, **options)
    return talk


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/orders/7/pay", 200),
        ("/orders/a.b/pay", 200),
        ("/orders//pay", 400),
        ("/orders/7/8/pay", 400),
        ("/orders/7/pay/", 400),
        ("/orders/7/payX", 400),
        ("/v1.0/pay", 200),
        ("/v1x0/pay", 400),
    ],
)
async def test_a_name_in_a_path_is_any_text_without_a_slash(
    onefold: Onefold, path: str, status: int
) -> None:
    idempotency = Idempotency(onefold)
    for template in ("/orders/{id}/pay", "/v1.0/pay"):
        idempotency.add("post", template, principal=caller, takeover="refuse")

    assert (await asked(idempotency.wrap(paid), path)).status == status


async def test_the_first_route_that_was_added_wins(onefold: Onefold) -> None:
    idempotency = Idempotency(onefold, takeover="refuse")
    idempotency.add("POST", "/orders/new", principal=caller, required=False)
    idempotency.add("POST", "/orders/{id}", principal=caller)
    app = idempotency.wrap(paid)

    assert (await asked(app, "/orders/new", key=None)).status == 200
    assert (await asked(app, "/orders/7", key=None)).status == 400


@pytest.mark.parametrize("status", [307, 308, 401, 403, 404, 405])
async def test_h042_h046_h047_what_an_application_says_before_its_endpoint_frees_the_key(
    onefold: Onefold, status: int
) -> None:
    statuses = iter([status, 201])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("x", next(statuses))(scope, receive, send)

    idempotency = Idempotency(onefold, takeover="refuse")
    idempotency.add("POST", "/pay", principal=caller)
    wrapped = idempotency.wrap(app)

    assert [(await asked(wrapped, "/pay")).status for _ in range(2)] == [status, 201]


@pytest.mark.parametrize("joined", [True, False])
async def test_h137_an_application_that_ends_without_an_answer_leaves_no_key_at_work(
    onefold: Onefold, effects: Effects, *, joined: bool
) -> None:
    async def silent(_scope: Any, _receive: Any, _send: Any) -> None: ...

    options: Any = {"transaction": onefold} if joined else {"takeover": "refuse"}
    idempotency = Idempotency(onefold, **options)
    idempotency.add("POST", "/pay", principal=caller)

    await Talk(idempotency.wrap(silent), part()).run()

    assert effects.claims == ([] if joined else [("k", SETTLED)])
