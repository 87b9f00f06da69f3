"""The pages are written in plain words."""

import re
from pathlib import Path

from tests.docs.pages import DOCS, PAGES, ROOT, name_of

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|(?:is|was|are) told|is said|a word about)\b", re.IGNORECASE
)

# Pages that are rewritten: folders with all of their pages, or single files.
FINISHED = [ROOT / "README.md", DOCS / "README.md", DOCS / "tutorial.md"]
FINISHED += [page for page in sorted(DOCS.glob("how-to/*.md")) if page.name < "m"]


def _is_finished(page: Path) -> bool:
    return any(page == part or part in page.parents for part in FINISHED)


def test_pages_avoid_words_that_hide_who_does_what() -> None:
    found = [
        f"{name_of(page)}:{number}: {match[0]}"
        for page in PAGES
        if _is_finished(page)
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for match in BANNED.finditer(line)
    ]

    assert not found, "\n".join(found)
