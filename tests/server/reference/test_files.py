"""The files of the reference page, as they are stored and as they are sent."""

import gzip
import hashlib
import json
from importlib.resources import files
from pathlib import Path

from onefold import Onefold
from onefold.server.reference_page import MEDIA_TYPES
from tests.fixtures.served import Api

STORED = files("onefold.server").joinpath("reference")
MOST = 500_000
"""Bytes that a browser loads for the page, without the document."""


def test_swagger_ui_is_the_recorded_version() -> None:
    recorded = json.loads(STORED.joinpath("swagger-ui.json").read_text())

    for name, digest in recorded["sha256"].items():
        content = gzip.decompress(STORED.joinpath(f"{name}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest, name
    bundle = gzip.decompress(STORED.joinpath("swagger-ui-bundle.js.gz").read_bytes())
    assert recorded["version"].encode() in bundle
    assert "Apache License" in STORED.joinpath("swagger-ui.LICENSE").read_text()


async def test_the_files_are_sent_compressed_and_stay_small(tmp_path: Path) -> None:
    async with Onefold(f"sqlite:///{tmp_path}/onefold.db") as onefold:
        await onefold.amigrate()
        api = Api(onefold)
        packed = [
            await api("GET", f"/v1/docs/{name}", accept_encoding="gzip") for name in MEDIA_TYPES
        ]
        plain = [await api("GET", f"/v1/docs/{name}") for name in MEDIA_TYPES]
        unknown = await api("GET", "/v1/docs/page.html")
        page = await Api(onefold, anonymous=False)("GET", "/v1/docs")

    assert [reply.status for reply in (*packed, *plain)] == [200] * 8
    assert sum(len(reply.body) for reply in packed) < MOST
    for small, whole in zip(packed, plain, strict=True):
        is_packed = small.headers.get("content-encoding") == "gzip"
        assert (gzip.decompress(small.body) if is_packed else small.body) == whole.body
        assert "content-encoding" not in whole.headers
    unknown.problem(404, "not_found")
    # The page forbids what is not from the server.
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
