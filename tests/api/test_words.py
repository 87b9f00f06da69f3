"""The source is written in plain words."""

import re

from tests.docs.pages import ROOT

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|anybody|(?:is|was|are)\s+told|is\s+said)\b", re.IGNORECASE
)


def test_the_source_avoids_words_that_hide_who_does_what() -> None:
    names = [
        str(path.relative_to(ROOT))
        for folder in ("src", "contract", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    found = [
        f"{name}:{number}: {match[0]}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        for match in BANNED.finditer(line)
    ]

    assert names, "no modules found"
    assert not found, "\n".join(found)
