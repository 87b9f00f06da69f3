"""Markup that templates do not escape again."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is HTML already. Jinja2 and Django ask it so by `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        """Itself: nothing is left to escape."""
        return str(self)


def hidden_input(name: str, value: str) -> Markup:
    """A hidden field."""
    # Off, or Firefox puts an old key back into a new page when it is reloaded.
    return Markup(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}" autocomplete="off">'
    )
