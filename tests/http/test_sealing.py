"""Stored answers, sealed."""

import base64
import subprocess
import sys

import pytest

from onefold import InvalidInput
from onefold.web.idempotency.encryption import Sealing, UnreadableAnswer, is_sealed

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
TEXT = '{"card": "ü 4242"}'


def test_h192_what_was_sealed_is_opened() -> None:
    sealing = Sealing({"2026": NEW}, current="2026")
    sealed = sealing.seal(TEXT, place="tenant/k")

    assert sealing.open(sealed, place="tenant/k") == TEXT
    assert sealed.startswith("sealed1:2026:")
    assert is_sealed(sealed)
    assert not is_sealed(TEXT)
    assert not is_sealed({"v": 1})
    assert sealing.seal(TEXT, place="tenant/k") != sealed, "each time differently"
    assert b"4242" not in base64.b64decode(sealed.rpartition(":")[2])
    assert repr(NEW) not in repr(sealing)
    with pytest.raises(UnreadableAnswer, match="moved"):
        sealing.open(sealed, place="other")
    with pytest.raises(UnreadableAnswer):
        Sealing({"b": NEW}, current="b").open(sealed.replace(":2026:", ":b:"), place="tenant/k")


def test_h192_without_the_key_it_is_unreadable_and_never_absent() -> None:
    sealed = Sealing({"2025": OLD}, current="2025").seal(TEXT)

    with pytest.raises(UnreadableAnswer, match="does not have"):
        Sealing({"2026": NEW}, current="2026").open(sealed)
    with pytest.raises(UnreadableAnswer, match="another key"):
        Sealing({"2025": NEW}, current="2025").open(sealed)


WHOLE = Sealing({"a": NEW}, current="a").seal(TEXT)


@pytest.mark.parametrize(
    "damaged",
    [
        WHOLE[:-8],
        WHOLE[:20],
        WHOLE[:-4] + "AAAA",
        WHOLE + "!",
        WHOLE + "ü",
        WHOLE.replace("sealed1", "sealed2"),
        *("", "sealed1", "sealed1:a", "sealed1:a:", TEXT),
    ],
    ids=range(11),
)
def test_what_is_damaged_is_unreadable(damaged: str) -> None:
    with pytest.raises(UnreadableAnswer):
        Sealing({"a": NEW}, current="a").open(damaged)


@pytest.mark.parametrize(
    ("keys", "current"),
    [
        ({}, "a"),
        ({"a": NEW}, "b"),
        ({"a": b"short"}, "a"),
        ({"": NEW}, ""),
        ({"a:b": NEW}, "a:b"),
    ],
)
def test_keys_that_cannot_seal_are_refused(keys: dict[str, bytes], current: str) -> None:
    with pytest.raises(InvalidInput):
        Sealing(keys, current=current)


def test_without_cryptography_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None;"
        "from onefold.web.idempotency.encryption import Sealing;"
        "Sealing({'a': bytes(32)}, current='a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert "pip install 'onefold[" in done.stderr
