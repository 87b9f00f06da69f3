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


PUBLIC = "web|django|client|server|telemetry|testing|events|claims"
INTERNAL = re.compile(
    rf"^\s*(?:from|import) (onefold\.(?!{PUBLIC})[a-z_.]+)(?: import|$)", re.MULTILINE
)


def test_pages_import_from_public_modules_only() -> None:
    # The explanation of generators shows how the inside works.
    found = [
        f"{name_of(page)}: {match[1]}"
        for page in PAGES
        if page.name != "why-generators.md"
        for match in INTERNAL.finditer(page.read_text())
    ]

    assert not found, "\n".join(found)
