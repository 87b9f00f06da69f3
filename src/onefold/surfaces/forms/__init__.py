"""Forms of web pages: a signed key in a hidden field, and pages for what may become of it."""

from onefold.surfaces.forms.form import Form
from onefold.surfaces.forms.freshness import NoStore, WsgiNoStore
from onefold.surfaces.forms.keys import FormKey, FormKeys, RefusedKey
from onefold.surfaces.forms.markup import Markup
from onefold.surfaces.forms.submitted import Entry, Submitted

__all__ = [
    "Entry",
    "Form",
    "FormKey",
    "FormKeys",
    "Markup",
    "NoStore",
    "RefusedKey",
    "Submitted",
    "WsgiNoStore",
]
