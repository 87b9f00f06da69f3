"""`{% load onefold %}`, and in a form: `{% onefold_key "order" %}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template
from django.core.exceptions import ImproperlyConfigured

from onefold.django.forms import form_keys, session_of

if TYPE_CHECKING:
    from django.template import Context

    from onefold.web.forms.form_keys import Markup

register: template.Library = template.Library()


@register.simple_tag(takes_context=True)
def onefold_key(context: Context, form: str) -> Markup:
    """A new key for a form, as its hidden field."""
    request: Any = getattr(context, "request", None) or context.get("request")
    if request is None:
        raise ImproperlyConfigured(
            "{% onefold_key %} needs the request: render the template with it, as"
            " render(request, …) does."
        )
    return form_keys().hidden_field(form, session_of(request))
