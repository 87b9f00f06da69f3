"""What Django has of its own: atomic blocks, exceptions, responses that are rendered late."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection, connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.test.client import encode_multipart
from django.test.utils import override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from onefold import InvalidInput, Onefold, OutsideTransactionWarning, UsageError
from onefold.django import Idempotency, Once, once_of
from tests.http.scenario_site import Reply
from tests.http.sync_apps import MIDDLEWARE, DjangoSite, WsgiClient

OnlyPosts = Callable[..., Reply]


def insert() -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into payment values (1)")


def alice(_request: HttpRequest) -> int:
    return 7


def site(view: Any, middleware: Any = MIDDLEWARE) -> OnlyPosts:
    """Posts to a view, as a server would."""
    client = WsgiClient(DjangoSite(path("pay", view), middleware=middleware))

    def post(
        key: str | None = "k",
        body: bytes = b"",
        content_type: str = "text/plain",
        method: str = "POST",
    ) -> Reply:
        headers = [("Content-Type", content_type)]
        if key is not None:
            headers.append(("Idempotency-Key", key))
        return client.call(method, "/pay", headers, body)

    return post


@pytest.mark.parametrize("is_inside", [True, False], ids=["in a block", "in a block of ours"])
def test_what_a_view_enqueues_within_is_part_of_its_block(
    rows: Callable[[], int], project_onefold: Onefold, *, is_inside: bool
) -> None:
    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        once_of(request).within().enqueue("mail")
        with pytest.raises(OutsideTransactionWarning):
            project_onefold.enqueue("call")
        return HttpResponse("paid")

    factory = RequestFactory(headers={"Idempotency-Key": "k"})
    with transaction.atomic() if is_inside else nullcontext():
        assert pay(factory.post("/pay")).content == b"paid"

    assert [job.kind for job in project_onefold.find()] == ["mail"]
    project_onefold.enqueue("call")


@pytest.mark.parametrize("is_on", [True, False])
def test_h165_atomic_requests_make_no_difference(rows: Callable[[], int], *, is_on: bool) -> None:
    """The block is begun by us, so that it is committed before the answer is sent."""
    seen: list[Any] = []

    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        seen.append(len(connection.savepoint_ids))
        insert()
        if len(seen) == 1:
            raise ValueError("oh")
        return HttpResponse("paid")

    connections.settings["default"]["ATOMIC_REQUESTS"] = is_on
    post = site(pay)

    assert [post().status, rows(), post().status, rows(), post().is_replay] == [
        500,
        0,
        200,
        1,
        True,
    ]
    assert seen == [0, 0], "no block but ours"


def test_h165_a_leased_view_keeps_the_block_of_atomic_requests_inside_or_is_exempt(
    rows: Callable[[], int],
) -> None:
    @Idempotency()(principal=alice, takeover="refuse")
    def pay(request: HttpRequest) -> HttpResponse:
        assert connection.in_atomic_block
        insert()
        raise ValueError("oh")

    connections.settings["default"]["ATOMIC_REQUESTS"] = True
    post = site(pay)

    first = post()
    assert [first.status, rows()] == [500, 0]
    assert post().body == first.body
    assert first.code == "attempt_failed"

    @Idempotency()(principal=alice, takeover="refuse")
    @transaction.non_atomic_requests
    def exempt(request: HttpRequest) -> HttpResponse:
        assert not connection.in_atomic_block
        return HttpResponse()

    assert site(exempt)("exempt").status == 200


def test_h165_in_a_block_that_is_open_everything_belongs_to_it(rows: Callable[[], int]) -> None:
    """As in a `TestCase`, which takes everything back."""

    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        insert()
        if "fail" in request.GET:
            raise Http404
        return HttpResponse("paid", status=201)

    factory = RequestFactory(headers={"Idempotency-Key": "k"})
    with transaction.atomic():
        first = pay(factory.post("/pay"))
        again = pay(factory.post("/pay"))
        other = pay(factory.post("/pay", data={"a": 1}))
        with pytest.raises(Http404):
            pay(factory.post("/pay?fail", headers={"Idempotency-Key": "another"}))
        assert [first.status_code, again.headers["Idempotent-Replayed"]] == [201, "true"]
        assert other.status_code == 422
        assert rows() == 1
        transaction.set_rollback(True)

    assert rows() == 0
    assert "Idempotent-Replayed" not in pay(factory.post("/pay")).headers
    assert rows() == 1


def test_a_leased_view_in_a_block_is_refused(project_onefold: Onefold) -> None:
    @Idempotency()(principal=alice, takeover="refuse")
    def pay(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with transaction.atomic(), pytest.raises(UsageError, match="use TransactionTestCase"):
        pay(RequestFactory(headers={"Idempotency-Key": "k"}).post("/pay"))


@pytest.mark.parametrize(("error", "status"), [(Http404("no"), 404), (PermissionDenied("no"), 403)])
@pytest.mark.parametrize("mode", [{}, {"takeover": "refuse"}], ids=["joined", "leased"])
def test_h131_h137_a_4xx_that_was_raised_is_undone_and_remembered(
    rows: Callable[[], int], error: Exception, status: int, mode: Any
) -> None:
    runs: list[int] = []

    @Idempotency()(principal=alice, **mode)
    def pay(request: HttpRequest) -> HttpResponse:
        runs.append(1)
        insert()
        raise error

    post = site(pay)

    first, retry = post(), post()

    assert [first.status, retry.status, retry.is_replay] == [status, status, True]
    assert (len(runs), retry.body) == (1, first.body)
    assert rows() == (1 if mode else 0)


def test_without_the_middleware_such_an_exception_frees_the_key(rows: Callable[[], int]) -> None:
    runs: list[int] = []

    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        runs.append(1)
        raise Http404

    post = site(pay, middleware=[])

    assert [post().status, post().status, len(runs)] == [404, 404, 2]


def test_rows_that_a_view_has_undone_itself_stay_undone(rows: Callable[[], int]) -> None:
    """Django REST framework answers so, after an exception."""

    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        insert()
        transaction.set_rollback(True)
        return HttpResponse("no funds", status=402)

    post = site(pay)

    assert [post().status, post().is_replay, rows()] == [402, True, 0]


def test_what_is_rendered_late_is_rendered_before_it_is_stored(project_onefold: Onefold) -> None:
    template: Any = engines["django"].from_string("paid {{ amount }}")

    @Idempotency()(principal=alice)
    def pay(request: HttpRequest, once: Once) -> HttpResponse:
        answer = TemplateResponse(request, template, {"amount": 7})
        return HttpResponse("form") if once is None else answer  # type: ignore[redundant-expr]

    post = site(pay)

    assert [post().body, post().body] == [b"paid 7", b"paid 7"]
    assert post(method="GET").body == b"form", "which has no attempt"


@pytest.mark.parametrize("stream", ["buffer", "forward", "tombstone"])
def test_h086_an_answer_in_parts_is_stored_whole(project_onefold: Onefold, stream: Any) -> None:
    @Idempotency()(principal=alice, takeover="refuse", stream=stream, mark_first=True)
    def pay(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(iter([b"a", b"b"]), headers={"X-Part": "2"})

    post = site(pay)
    first, retry = post(), post()

    assert (first.body, first.headers["idempotent-replayed"]) == (b"ab", "false")
    if stream == "tombstone":
        assert retry.code == "response_not_kept"
    else:
        assert [retry.body, retry.is_replay, retry.headers["x-part"]] == [b"ab", True, "2"]


def test_h056_h096_a_form_with_a_file_is_read_by_all_who_want_it(project_onefold: Onefold) -> None:
    """CsrfViewMiddleware reads it before the view, and nobody can read it twice."""
    from django.views.decorators.csrf import csrf_exempt

    seen: list[Any] = []

    @csrf_exempt
    @Idempotency()(principal=alice, fingerprint="form")
    def pay(request: HttpRequest) -> HttpResponse:
        file: Any = request.FILES["receipt"]
        seen.append((request.POST["amount"], file.read()))
        return HttpResponse("paid")

    post = site(pay, [*MIDDLEWARE, f"{__name__}.ReadsForms"])
    body = {"amount": "7"}

    def multipart(boundary: str) -> Reply:
        from django.core.files.uploadedfile import SimpleUploadedFile

        made = encode_multipart(
            boundary, {**body, "receipt": SimpleUploadedFile("r.txt", b"r" * 2_000_000)}
        )
        return post(body=made, content_type=f"multipart/form-data; boundary={boundary}")

    assert [multipart("one").status, multipart("two").is_replay] == [200, True]
    assert seen == [("7", b"r" * 2_000_000)]
    body["amount"] = "8"
    assert multipart("three").code == "key_reused"


def ReadsForms(get_response: Any) -> Any:  # noqa: N802 - a middleware, as Django names them
    """Reads a form in `process_view`, as CsrfViewMiddleware does."""

    def middleware(request: HttpRequest) -> Any:
        return get_response(request)

    def process_view(request: HttpRequest, *_: Any) -> None:
        request.POST.get("csrfmiddlewaretoken")

    middleware.process_view = process_view  # type: ignore[attr-defined]
    return middleware


def test_a_form_that_was_read_before_is_said_to_be(project_onefold: Onefold) -> None:
    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    request = RequestFactory(headers={"Idempotency-Key": "k"}).post("/pay", {"a": "1"})
    assert request.POST["a"] == "1"

    with pytest.raises(UsageError, match="IdempotencyMiddleware into MIDDLEWARE"):
        pay(request)


def test_keys_may_be_ignored_where_no_view_honours_them(project_onefold: Onefold) -> None:
    def plain(request: HttpRequest) -> HttpResponse:
        return HttpResponse("plain")

    with override_settings(ONEFOLD={"UNCONFIGURED": "ignore"}):
        post = site(plain)

    assert post().body == b"plain"


def test_a_class_of_views_is_decorated_at_its_dispatch(rows: Callable[[], int]) -> None:
    @method_decorator(Idempotency(transaction=connection)(principal=alice), name="dispatch")
    class Pay(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            insert()
            return HttpResponse(once_of(request).request_key)

        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("form")

    post = site(Pay.as_view())

    assert [post().body, post().is_replay, rows()] == [b"k", True, 1]
    assert post(method="GET").body == b"form"
    with pytest.raises(InvalidInput, match="must be a function"):
        Idempotency()(principal=alice)(View)


def test_a_view_without_a_policy_has_no_once() -> None:
    with pytest.raises(UsageError, match="has no policy"):
        once_of(RequestFactory().post("/"))
