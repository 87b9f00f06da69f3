"""What ends the demo early."""

from __future__ import annotations

from onefold.errors import OnefoldError


class PromiseBroken(OnefoldError):
    """The demo found that something it was about to say is not so."""

    def __init__(self, fact: str) -> None:
        """`fact` is the sentence that does not hold."""
        super().__init__(f"This should hold, and does not: {fact}. Please report it.", fact=fact)
