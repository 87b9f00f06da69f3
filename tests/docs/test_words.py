"""The pages are written in plain words."""

import re

from tests.docs.pages import PAGES, ROOT, name_of

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|(?:is|was|are) told|is said|a word about)\b", re.IGNORECASE
)
CHECKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def test_pages_avoid_words_that_hide_who_does_what() -> None:
    found = [
        f"{name_of(page)}:{number}: {match[0]}"
        for page in CHECKED
        for number, line in enumerate(page.read_text().splitlines(), 1)
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
