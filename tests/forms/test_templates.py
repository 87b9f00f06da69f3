"""The hidden field in plain Python, Jinja2 and Django's templates (H220)."""

from typing import Any

from django.template import Context, Engine
from jinja2 import Environment

from onefold.web.forms import FormKey, FormKeys
from onefold.web.forms.form_keys import hidden_input
from onefold.web.forms.jinja import add_form_keys
from tests.forms.html import inputs


def test_h220_a_field_in_plain_python_has_a_key(keys: FormKeys) -> None:
    page = f"<form method=post>{keys.hidden_field('order', 'a')}<button>Order</button></form>"

    (field,) = inputs(page)
    assert field["type"] == "hidden"
    assert field["name"] == "onefold_key"
    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)


def test_a_browser_does_not_put_an_old_key_into_a_new_page(keys: FormKeys) -> None:
    (field,) = inputs(keys.hidden_field("order", "a"))

    assert field["autocomplete"] == "off"


def test_a_field_can_have_another_name() -> None:
    keys = FormKeys("a secret that is long enough", field="once")

    (field,) = inputs(keys.hidden_field("order", "a"))

    assert field["name"] == "once"


def test_what_could_end_a_field_is_escaped() -> None:
    (field,) = inputs(hidden_input('a"b', "<c>&'"))

    assert (field["name"], field["value"]) == ('a"b', "<c>&'")


def test_h220_a_field_in_a_template_of_jinja2_has_a_key(keys: FormKeys) -> None:
    environment = Environment(autoescape=True)
    add_form_keys(environment, keys, session=lambda context: context["visitor"])
    template = environment.from_string('<form>{{ onefold_key("order") }}</form>')

    (field,) = inputs(template.render(visitor="a"))

    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)


def test_each_rendering_has_a_key_of_its_own(keys: FormKeys) -> None:
    environment = Environment(autoescape=True)
    add_form_keys(environment, keys, session=lambda context: context["visitor"])
    template = environment.from_string('{{ onefold_key("order") }}{{ onefold_key("order") }}')

    rendered = [*inputs(template.render(visitor="a")), *inputs(template.render(visitor="a"))]

    assert len({field["value"] for field in rendered}) == 4


def test_a_template_of_django_does_not_escape_a_field_again(keys: FormKeys) -> None:
    engine = Engine()
    values: dict[str, Any] = {"field": keys.hidden_field("order", "a")}

    (field,) = inputs(engine.from_string("{{ field }}").render(Context(values)))

    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)
