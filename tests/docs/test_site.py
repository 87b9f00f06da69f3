"""The documentation site: it is built without a warning, and requests nothing from other hosts."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import BrowserContext

from onefold.model.lifecycle import mermaid
from tests.docs.pages import DOCS, ROOT, script
from tests.fixtures.browser import browser, visitor

__all__ = ["browser", "visitor"]

CONFIGURATION = ROOT / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: `--strict` stops at a link or an anchor that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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
    "page", ["explanation/states.html", pytest.param("404.html", marks=pytest.mark.prove)]
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


def test_every_change_of_the_lifecycle_is_drawn() -> None:
    drawn = script("site").on_page_markdown(f"```mermaid\n{mermaid()}\n```\n")

    for line in mermaid().splitlines()[1:]:
        assert f">{line.partition(': ')[2]}</text>" in drawn
