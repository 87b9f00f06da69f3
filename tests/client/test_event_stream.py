"""Server-sent events as the HTML standard has them, in pieces of any size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.client import event_stream
from onefold.client.event_stream import EventBlock, EventStream, NotEvents

TEXT = (
    "retry: 3000\nid: a-0\n: listening\n\n"
    "id: a-1\r\nevent: job.ended\r\ndata: {\r\ndata:  1}\r\n\r\n"
    "event:tight\rdata:x\r\r"
    "data\nunknown: 1\nretry: soon\nid: b\x00\n\n"
    ": still here\n\n"
    "data: ü\n\ndata: never ended\n"
).encode()

BLOCKS = [
    EventBlock(id="a-0", retry=3000),
    EventBlock(name="job.ended", data="{\n 1}", id="a-1"),
    EventBlock(name="tight", data="x"),
    EventBlock(),
    EventBlock(),
    EventBlock(data="ü"),
]


@given(st.lists(st.integers(min_value=0, max_value=len(TEXT))))
def test_blocks_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    stream = EventStream()
    places = [0, *sorted(cuts), len(TEXT)]

    pieces = [TEXT[start:end] for start, end in pairwise(places)]

    assert [block for piece in pieces for block in stream.feed(piece)] == BLOCKS


@pytest.mark.parametrize("text", [b"x" * 200, b"data: " + b"x" * 60 + b"\n", b"data: x\n" * 20])
def test_what_never_ends_is_no_stream_of_events(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LONGEST", 50)
    stream = EventStream()

    with pytest.raises(NotEvents, match="more than 50 bytes"):
        stream.feed(text)
