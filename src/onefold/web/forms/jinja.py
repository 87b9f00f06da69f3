"""Form keys in Jinja2's templates: `{{ onefold_key("order") }}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.errors import Needs

with Needs("jinja2"):
    from jinja2 import pass_context


if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment
    from jinja2.runtime import Context

    from onefold.web.forms.form_keys import FormKeys, Markup

GLOBAL: Final = "onefold_key"


def add_form_keys(
    environment: Environment, keys: FormKeys, *, session: Callable[[Context], str]
) -> None:
    """Let every template of an environment show a key: `{{ onefold_key("order") }}`.

    `session` finds the session in a template's context, as in
    `lambda context: context["request"].session["id"]`.
    """

    @pass_context
    def onefold_key(context: Context, form: str) -> Markup:
        return keys.hidden_field(form, session(context))

    known: dict[str, Any] = environment.globals
    known[GLOBAL] = onefold_key
