"""A visitor without scripts: requests to the dashboard in the process, and a parser of pages."""

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from onefold import Onefold
from onefold.model.api_key import Scope
from onefold.server.dashboard.dashboard import Dashboard
from onefold.server.dashboard.page import Incoming
from onefold.web.http import HttpRequest, HttpResponse

SECRET = "the secret of the dashboard's tests"
VOID = {"br", "img", "input", "link", "meta"}
STEP = re.compile(r"""([\w-]+)|\#([\w-]+)|\.([\w-]+)|\[([\w-]+)(?:="([^"]*)")?\]""")
Fields: TypeAlias = list[tuple[str, str]]


class Element:
    """An element of a page, and how to find others in it."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: "Element | None") -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    @property
    def raw(self) -> str:
        """The text as it stands."""
        parts = [child if isinstance(child, str) else child.raw for child in self.children]
        return " " if self.tag == "br" else "".join(parts)

    @property
    def text(self) -> str:
        """The text, with single spaces."""
        return " ".join(self.raw.split())

    @property
    def elements(self) -> "list[Element]":
        """Everything in it, in the order of the page."""
        inside = [child for child in self.children if isinstance(child, Element)]
        return [found for child in inside for found in (child, *child.elements)]

    def all(self, selector: str) -> "list[Element]":
        """What matches `tag#id.class[name="value"]`; a space is for what is inside."""
        found: list[Element] = [self]
        for part in re.findall(r'(?:[^ "]|"[^"]*")+', selector):
            found = list(
                {id(one): one for each in found for one in each.elements if one.is_a(part)}.values()
            )
        return found

    def is_a(self, part: str) -> bool:
        """Whether it matches one part of a selector."""
        for tag, its_id, its_class, name, value in STEP.findall(part):
            if tag and self.tag != tag:
                return False
            if its_id and self.attributes.get("id") != its_id:
                return False
            if its_class and its_class not in self.attributes.get("class", "").split():
                return False
            if name and (name not in self.attributes or (value and self.attributes[name] != value)):
                return False
        return True

    def one(self, selector: str) -> "Element":
        """The only one that matches."""
        found = self.all(selector)
        assert len(found) == 1, (selector, [each.text for each in found], self.text)
        return found[0]

    def texts(self, selector: str) -> list[str]:
        """The texts of all that match."""
        return [found.text for found in self.all(selector)]

    def part(self, heading: str) -> "Element":
        """The section or figure with this heading."""
        found = [
            part
            for part in (*self.all("section"), *self.all("figure"))
            if heading in (*part.texts("h2"), *part.texts("h1"))
        ]
        assert len(found) == 1, (heading, self.texts("h2"))
        return found[0]

    def row(self, key: str) -> "Element":
        """The row or card of a key."""
        (found,) = [one for one in self.elements if one.attributes.get("data-key") == key]
        return found

    @property
    def keys(self) -> list[str]:
        """The keys of the rows of a table."""
        return [row["data-key"] for row in self.all("tbody tr")]

    def link(self, text: str) -> str:
        """Where the link with this text leads."""
        (found,) = {one["href"] for one in self.all("a") if one.text == text}
        return found

    def buttons(self, text: str) -> "list[Element]":
        """The buttons of forms that are sent, with this text."""
        return [
            one
            for one in self.all("button")
            if one.text == text and "type" not in one.attributes and _form(one) is not None
        ]


class _Parser(HTMLParser):
    """Makes a tree of a page; complains of elements that do not fit into each other."""

    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Element("document", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(made)
        if tag not in VOID:
            self.at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> ends <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def parsed(text: str) -> Element:
    """The tree of a page."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert parser.at is parser.root
    return parser.root


def _form(element: Element) -> Element | None:
    found: Element | None = element
    while found is not None and found.tag != "form":
        found = found.parent
    return None if found is not None and found.attributes.get("method") == "dialog" else found


class Visitor:
    """Opens pages, follows links and sends forms. There is one page at a time."""

    def __init__(self, onefold: Onefold, **settings: Any) -> None:
        settings.setdefault("anonymous", True)
        self.onefold = onefold
        self.dashboard = Dashboard(onefold, SECRET, **settings)
        self.cookies: dict[str, str] = {}
        self.at = ""
        """The path of the page, without its notice."""
        self.page = Element("document", {}, None)
        self.status = 0

    def send(
        self, method: str, path: str, form: Fields | dict[str, str] | str = "", **headers: str
    ) -> HttpResponse:
        """One request, and the response to it."""
        body = form if isinstance(form, str) else urlencode(form)
        named = {"host": "localhost", **headers}
        if method == "POST":
            named["content_type"] = "application/x-www-form-urlencoded"
        if self.cookies:
            pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            named["cookie"] = "; ".join(filter(None, (named.get("cookie", ""), pairs)))
        where, _, query = path.partition("?")
        request = HttpRequest(
            method=method,
            path=where,
            query=query,
            headers=tuple((name.replace("_", "-"), value) for name, value in named.items()),
        )
        secure = named.get("x_forwarded_proto") == "https"
        response = self.dashboard.respond(
            Incoming(http=request, body=body.encode(), secure=secure, client=("127.0.0.1", 50_000))
        )
        for name, value in response.headers:
            if name == "set-cookie":
                cookie, _, text = value.partition(";")[0].partition("=")
                self.cookies[cookie] = text
        return response

    def open(self, path: str) -> Element:
        """The page at a path, or where that leads."""
        return self._shown(path, self.send("GET", path))

    def _shown(self, path: str, response: HttpResponse) -> Element:
        while response.status == 303:
            path = dict(response.headers)["location"]
            response = self.send("GET", path)
        where, _, query = path.partition("?")
        kept = urlencode([(name, value) for name, value in parse_qsl(query) if name != "notice"])
        self.at = f"{where}?{kept}" if kept else where
        self.status = response.status
        self.page = parsed(response.body.decode())
        return self.page

    @property
    def main(self) -> Element:
        return self.page.one("main")

    @property
    def notice(self) -> str:
        """What the last action has said; `!` is before what failed."""
        (toast,) = self.page.all(".toast")
        return ("!" if toast.is_a(".failed") else "") + toast.text

    def click(self, text: str) -> Element:
        """Follow a link."""
        return self.open(self.page.link(text))

    def form(self, button: Element, fields: dict[str, Any]) -> tuple[Element, Fields]:
        """The form of a button, and what it sends; `fields` replace what the page has."""
        form = _form(button)
        assert form is not None
        its_id = form.attributes.get("id", "-")
        known: set[str] = set()
        sent: Fields = []
        for field in self.page.elements:
            inside = _form(field) is form or field.attributes.get("form") == its_id
            if inside and field.tag in {"input", "select", "textarea"}:
                known.add(field["name"])
                given = fields.get(field["name"])
                sent += [(field["name"], value) for value in _values(field, given)]
        assert known >= set(fields), "no such field"
        if button.is_a("[name]"):
            sent.append((button["name"], button.attributes.get("value", "")))
        return form, sent

    def press(
        self,
        label: str,
        within: Element | None = None,
        given: Mapping[str, Any] | None = None,
        *,
        twice: bool = True,
        **fields: Any,
    ) -> Element:
        """Press a button, by default with a double click: the second one changes nothing.

        A text is the value of a field, and a list has the values of ticks.
        """
        (button,) = (within or self.page).buttons(label)
        form, sent = self.form(button, {**(given or {}), **fields})
        path = button.attributes.get("formaction") or form.attributes.get("action") or self.at
        if form.attributes.get("method") != "post":
            return self.open(f"{path}?{urlencode(sent)}")
        response = self.send("POST", path, sent)
        if twice and any(name == "onefold_key" for name, _ in sent):
            again = self.send("POST", path, sent)
            assert (again.status, _location(again)) == (response.status, _location(response))
        self._shown(path, response)
        return self.page

    def confirm(self, label: str, *, within: Element | None = None, **fields: Any) -> str:
        """Press a button that asks first, and answer yes. Returns the question."""
        self.press(label, within=within, **fields)
        question = self.main.one("p").text
        self.press("Continue")
        return question

    def log_in(self, scope: Scope = "admin", tenant: str = "") -> str:
        """Log in with a new API key; its id."""
        self.cookies.clear()
        made = self.onefold.api_keys.create(tenant, scopes=[scope], name=f"{scope} of the test")
        self.open("/login")
        self.press("Log in", key=made.text)
        assert self.at == "/"
        return made.key.id


def _values(field: Element, given: Any) -> list[str]:
    """What a field sends."""
    if field.attributes.get("type") == "checkbox":
        ticked = field.is_a("[checked]") if given is None else field["value"] in given
        return [field["value"]] if ticked else []
    if field.tag == "select":
        options = {one.attributes.get("value", one.text): one for one in field.all("option")}
        assert given is None or given in options
        chosen = [value for value, one in options.items() if one.is_a("[selected]")]
        return [given or (*chosen, *options)[0]]
    if given is not None:
        return [given]
    return [field.raw if field.tag == "textarea" else field.attributes.get("value", "")]


def _location(response: HttpResponse) -> str | None:
    return dict(response.headers).get("location")
