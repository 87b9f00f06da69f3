"""The pages are written in plain words."""

import re
from pathlib import Path

from tests.docs.pages import PAGES, ROOT, name_of

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|(?:is|was|are) told|is said|a word about)\b", re.IGNORECASE
)
# The text of the command line is not the text of a page.
CONSOLE = re.compile(r"^```console\n.*?^```$", re.MULTILINE | re.DOTALL)
CHECKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def lines_of(page: Path) -> list[str]:
    """The lines of a page, with empty ones in place of console output."""
    return CONSOLE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text()).splitlines()


def test_pages_avoid_words_that_hide_who_does_what() -> None:
    found = [
        f"{name_of(page)}:{number}: {match[0]}"
        for page in CHECKED
        for number, line in enumerate(lines_of(page), 1)
        for match in BANNED.finditer(line)
    ]

    assert not found, "\n".join(found)
