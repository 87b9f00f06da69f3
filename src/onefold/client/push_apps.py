"""A receiver of pushed jobs as a WSGI application."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from onefold.client.verdict import ACCEPTED
from onefold.web.webhooks import webhook_apps

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.client.receiver import Receiver
    from onefold.web.http import HttpRequest, HttpResponse

log: logging.Logger = logging.getLogger("onefold.client")


class WsgiReceiver:
    """Mount it, or run it."""

    def __init__(self, receiver: Receiver) -> None:
        """Made by `Receiver.wsgi`."""
        self._receiver = receiver
        self._threads: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = webhook_apps.wsgi_request_of(environ)
        body = webhook_apps.wsgi_read_body(request, environ, self._receiver.max_body)
        refused = body if not isinstance(body, bytes) else self._receiver.check(request, body)
        if refused is not None or not isinstance(body, bytes):
            assert refused is not None
            return _said(refused, start_response, head=request.method == "HEAD")
        if self._receiver.mode == "ack":
            self._workers().submit(self._work, request, body)
            return _said(ACCEPTED, start_response)
        return _said(self._receiver.receive(request, body), start_response)

    def _work(self, request: HttpRequest, body: bytes) -> None:
        try:
            self._receiver.receive(request, body)
        except Exception:
            # Nobody asks a thread of ours how it went.
            log.exception("A pushed job could not be received.")

    def _workers(self) -> ThreadPoolExecutor:
        """Made in the process that needs them.

        Not in `close()` of the answer: some servers send nothing before that has come to its end.
        """
        with self._mutex:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(thread_name_prefix="onefold-receiver")
            return self._threads


def _said(
    answer: HttpResponse, start_response: StartResponse, *, head: bool = False
) -> list[bytes]:
    start_response(webhook_apps.status_line(answer.status), list(answer.headers))
    return [b"" if head else answer.body]
