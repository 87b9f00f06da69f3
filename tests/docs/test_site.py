"""The documentation site: it is built without a warning, and requests nothing from other hosts."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from onefold.model.lifecycle import mermaid
from tests.docs.pages import DOCS, ROOT, script
from tests.fixtures.browser import browser, visitor

__all__ = ["browser", "visitor"]

CONFIGURATION = ROOT / "mkdocs.yml"


def build(folder: Path, *, configuration: Path = CONFIGURATION) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder),
         "--config-file", str(configuration)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the built site is served."""

    class Quiet(SimpleHTTPRequestHandler):
        # The standard library names the parameter.
        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"([\w/.-]+\.md)$", CONFIGURATION.read_text(), re.MULTILINE)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}

    assert set(listed) == pages
    assert len(listed) == len(pages)


@pytest.mark.prove
def test_a_broken_link_or_anchor_stops_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "README.md").write_text("# Start\n\n[there](README.md#nowhere) [gone](gone.md)\n")
    text = CONFIGURATION.read_text().partition("nav:\n  - Start")[0]
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(
        text.replace("- site.css", "[]").replace("tools/site.py", str(ROOT / "tools/site.py"))
    )

    done = build(tmp_path / "site", configuration=configuration)

    assert done.returncode != 0
    assert "gone.md" in done.stdout + done.stderr
    assert "#nowhere" in done.stdout + done.stderr


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc="?(?:https?:)?//[^>]*>"""
        r"""|<link\b(?![^>]*rel="?canonical)[^>]*href="?(?:https?:)?//[^>]*>"""
        r"""|@import|url\(["']?(?:https?:)?//"""
    )
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for path in site.rglob("*")
        if path.suffix in {".html", ".css"}
        for match in loads.finditer(path.read_text())
    ]

    assert not found


@pytest.mark.parametrize(
    "page",
    [
        "explanation/states.html",
        *(
            pytest.param(page, marks=pytest.mark.prove)
            for page in ("index.html", "reference/api.html", "404.html")
        ),
    ],
)
def test_a_browser_asks_only_the_host_of_the_site(
    page: str, address: str, visitor: BrowserContext
) -> None:
    asked: list[str] = []
    visitor.on("request", lambda request: asked.append(request.url))
    tab = visitor.new_page()

    # In the address: the page may not yet read the keyboard.
    tab.goto(f"{address}/{page}?q=unique+key", wait_until="networkidle")
    if page != "404.html":
        tab.locator(".md-search-result__item").first.wait_for()

    assert asked
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_diagram_is_drawn_in_both_colour_schemes(
    scheme: Any, address: str, visitor: BrowserContext
) -> None:
    tab = visitor.new_page()
    tab.emulate_media(color_scheme=scheme)

    tab.goto(f"{address}/explanation/states.html", wait_until="networkidle")

    drawing = tab.locator(".diagram svg")
    assert drawing.locator(".name").all_text_contents() == [
        "queued", "running", "completed", "cancelled", "dead",
    ]  # fmt: skip
    colours = drawing.locator(".name").first.evaluate(
        "node => [getComputedStyle(node).fill, getComputedStyle(document.body).backgroundColor]"
    )
    assert colours[0] != colours[1]


def test_every_change_of_the_lifecycle_is_drawn() -> None:
    drawn = script("site").on_page_markdown(f"```mermaid\n{mermaid()}\n```\n")

    for line in mermaid().splitlines()[1:]:
        assert f">{line.partition(': ')[2]}</text>" in drawn


@pytest.mark.prove
@pytest.mark.parametrize(
    "text",
    [
        "flowchart LR\n",
        "sequenceDiagram\nloop\n",
        "sequenceDiagram\na->>b: c; d\n",
        "stateDiagram-v2\na --> b: c\n",
    ],
)
def test_a_diagram_that_cannot_be_drawn_stops_the_build(text: str) -> None:
    module = script("site")

    with pytest.raises(module.CannotDraw, match=r"tools/site\.py"):
        module.on_page_markdown(f"```mermaid\n{text}```\n")


def test_no_text_of_a_diagram_is_cut_off(address: str, visitor: BrowserContext) -> None:
    tab = visitor.new_page()
    for page in sorted(DOCS.rglob("*.md")):
        if "```mermaid" not in page.read_text():
            continue
        name = str(page.relative_to(DOCS)).replace("README.md", "index.md").replace(".md", ".html")
        tab.goto(f"{address}/{name}")
        outside = tab.evaluate(
            """() => [...document.querySelectorAll('.diagram svg')].flatMap(svg => {
                const box = svg.viewBox.baseVal;
                return [...svg.querySelectorAll('text')].filter(text => {
                    const at = text.getBBox();
                    return at.x < 0 || at.x + at.width > box.width || at.y + at.height > box.height;
                }).map(text => text.textContent);
            })"""
        )

        assert outside == [], page
