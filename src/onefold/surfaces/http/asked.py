"""What a request asks for, and how many may wait for its answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from onefold.model.claim import ClaimKey
from onefold.surfaces.http.body import Digested
from onefold.surfaces.http.request import Request

if TYPE_CHECKING:
    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.http.policy import Policy
    from onefold.surfaces.http.problem import Problem


class Asked(msgspec.Struct, frozen=True):
    """What is asked, by whom, under which key."""

    request: Request
    body: Digested
    key: ClaimKey | None
    """None where the request has none, and its route asks for none."""

    def refusal(self, problem: Problem, policy: Policy) -> Answer:
        """How the client is told that it is not carried out, or not again."""
        described = problem.described_by(policy.link)
        if policy.form is not None:
            page: Answer | None = policy.form.page(self, described)
            if page is not None:
                return page
        return described.answer(self.request)


class Waiters:
    """How many duplicates of a route wait in this process: each keeps a worker from other work."""

    def __init__(self, most: int) -> None:
        """`most` may wait at a time."""
        self._most = most
        self._count = 0
        self._mutex = threading.Lock()

    def enter(self) -> bool:
        """False where too many wait already."""
        with self._mutex:
            if self._count >= self._most:
                return False
            self._count += 1
            return True

    def leave(self) -> None:
        """One waits no more."""
        with self._mutex:
            self._count -= 1
