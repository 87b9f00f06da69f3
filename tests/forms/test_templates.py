"""The hidden field in plain Python and Jinja2 (H220)."""

from jinja2 import Environment

from onefold.web.forms import FormKey, FormKeys
from onefold.web.forms.form_keys import hidden_input
from onefold.web.forms.jinja import add_form_keys
from tests.forms.conftest import SECRET
from tests.forms.html import inputs


def test_h220_a_field_in_plain_python_has_a_key(keys: FormKeys) -> None:
    page = f"<form method=post>{keys.hidden_field('order', 'a')}<button>Order</button></form>"

    (field,) = inputs(page)
    assert field["type"] == "hidden"
    assert (field["name"], field["autocomplete"]) == ("onefold_key", "off")
    (other,) = inputs(FormKeys(SECRET, field="once").hidden_field("order", "a"))
    assert other["name"] == "once"
    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)


def test_what_could_end_a_field_is_escaped() -> None:
    (field,) = inputs(hidden_input('a"b', "<c>&'"))

    assert (field["name"], field["value"]) == ('a"b', "<c>&'")


def test_h220_a_field_in_a_template_of_jinja2_has_a_key(keys: FormKeys) -> None:
    environment = Environment(autoescape=True)
    add_form_keys(environment, keys, session=lambda context: context["visitor"])
    template = environment.from_string('<form>{{ onefold_key("order") }}</form>')

    (field,), (other,) = (inputs(template.render(visitor="a")) for _ in range(2))

    assert field["value"] != other["value"]
    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)
