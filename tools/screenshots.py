"""Write the pictures of the documentation: `make screenshots`, with the fixtures of the tests."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from playwright.sync_api import Browser, Page

from onefold import Onefold
from tests.dashboard.conftest import browser, onefold, seeded, store, url
from tests.dashboard.seed import Seeded, in_thread
from tests.dashboard.seed_keys import detail, fill_day, save_queues, save_workers, seed_keys
from tests.fixtures.colours import Dialect, Store

__all__ = ["browser", "onefold", "seeded", "store", "url"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LIMIT = 80_000
"""Bytes of a picture."""


PALETTE = """
async source => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const common = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  const palette = common.slice(0, 256);
  const parts = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  const known = palette.map(parts);
  const places = new Map(common.map((colour) => {
    const [r, g, b] = parts(colour);
    const far = known.map(([x, y, z]) => (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2);
    return [colour, far.indexOf(Math.min(...far))];
  }));
  const found = Uint8Array.from(pixels, (pixel) => places.get(pixel));
  let text = "";
  for (let at = 0; at < found.length; at += 8192)
    text += String.fromCharCode(...found.subarray(at, at + 8192));
  return [image.width, image.height, known.flat(), btoa(text)];
}
"""
"""Maps each pixel to the nearest of the 256 most common colours."""


def compressed(picture: bytes, page: Page) -> bytes:
    """A PNG with a palette: a third of the size."""
    source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    width, height, palette, text = page.evaluate(PALETTE, source)
    pixels = base64.b64decode(text)
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"PLTE", bytes(palette)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


Theme: TypeAlias = Literal["light", "dark"]


@pytest.fixture
def dialect() -> Dialect:
    """The pictures do not know the database."""
    return "sqlite"


@pytest.fixture
def day(store: Store, onefold: Onefold, seeded: Seeded) -> str:
    """A day of a shop; returns an API key to log in with."""
    seed_keys(store)
    return in_thread(lambda: fill(onefold, seeded))


def fill(onefold: Onefold, seeded: Seeded) -> str:
    """Add the statistics, queues, workers, schedules and API keys of a shop."""
    fill_day(onefold)
    save_queues(onefold)
    save_workers(onefold)
    onefold.delete(seeded.hostile)
    onefold.schedules.save("close-day", "0 18 * * 1-5", kind="close_day", tz="Europe/Berlin")
    onefold.schedules.save("sync-stock", "*/15 * * * *", kind="sync_inventory")
    onefold.schedules.pause("close-day")
    onefold.api_keys.create("acme", scopes=["publish", "read"], name="Acme's shop", rate="100/s")
    onefold.api_keys.create(scopes=["work"], name="Worker 7")
    return onefold.api_keys.create(scopes=["admin"], name="Ada").text


def paths(theme: Theme, job_id: str) -> dict[str, str]:
    """The paths of the pages by the names of their pictures."""
    if theme == "dark":
        return {"job": f"/jobs/{job_id}", "schedules": "/schedules"}
    return {
        "overview": "/?last=24h",
        "jobs": "/jobs",
        "queues": "/queues",
        "queue": "/queues/payments",
        "key": detail("once", "charge", "o-1042"),
        "dead": "/dead",
        "workers": "/workers",
        "api-keys": "/api-keys",
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_has_a_picture(
    day: str, seeded: Seeded, url: str, browser: Browser, theme: Theme
) -> None:
    visitor = browser.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme=theme, locale="en-GB"
    )
    page, plain = visitor.new_page(), visitor.new_page()
    page.goto(f"{url}/login")
    page.get_by_label("API key").fill(day)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{url}/")
    sizes: dict[str, int] = {}
    for name, path in paths(theme, seeded.dead).items():
        page.goto(url + path)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector("#live[data-state=live]")
        file = IMAGES / f"dashboard-{name}-{theme}.png"
        file.write_bytes(compressed(page.screenshot(animations="disabled"), plain))
        sizes[file.name] = file.stat().st_size
    visitor.close()

    assert {name: size for name, size in sizes.items() if size > LIMIT} == {}


def test_the_reference_page_has_a_picture(url: str, browser: Browser) -> None:
    visitor = browser.new_context(viewport={"width": 1280, "height": 860})
    page, plain = visitor.new_page(), visitor.new_page()
    page.goto(f"{url}/v1/docs")
    page.get_by_role("heading", name="Queues").wait_for()
    file = IMAGES / "dashboard-reference-light.png"
    file.write_bytes(compressed(page.screenshot(animations="disabled"), plain))
    visitor.close()

    assert file.stat().st_size <= LIMIT
