"""Forms of web pages: a signed key in a hidden field, and pages for what may become of it."""

from onefold.web.forms.form import Form, FormEntry, Submitted
from onefold.web.forms.form_keys import FormKey, FormKeys, Markup, RefusedKey
from onefold.web.forms.no_store import NoStore, WsgiNoStore

__all__ = [
    "Form",
    "FormEntry",
    "FormKey",
    "FormKeys",
    "Markup",
    "NoStore",
    "RefusedKey",
    "Submitted",
    "WsgiNoStore",
]
