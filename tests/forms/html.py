"""What a page says, read as a browser reads it."""

from html.parser import HTMLParser


class _Inputs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "input":
            self.found.append({name: value or "" for name, value in attrs})


def inputs(page: str | bytes) -> list[dict[str, str]]:
    """The attributes of every <input>."""
    parser = _Inputs()
    parser.feed(page if isinstance(page, str) else page.decode())
    parser.close()
    return parser.found


def value(page: str | bytes, name: str) -> str:
    """The value of the one <input> of a name."""
    (found,) = (field["value"] for field in inputs(page) if field.get("name") == name)
    return found
