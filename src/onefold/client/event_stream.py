"""A parser of server-sent events, as the HTML standard defines them."""

from __future__ import annotations

from typing import Final

import msgspec

LONGEST: Final = 1024 * 1024
"""Bytes of one line, or of the data of one event; those of a server have a few hundred."""


class NotEvents(Exception):
    """The bytes are not a stream of events."""


class EventBlock(msgspec.Struct):
    """The fields up to an empty line."""

    name: str = "message"
    data: str = ""
    """Empty if the block is not an event."""
    id: str | None = None
    retry: int | None = None
    """Milliseconds."""


class EventStream:
    """Receives bytes in pieces of any size; returns complete blocks."""

    def __init__(self) -> None:
        """One parser is for one connection."""
        self._rest = b""
        self._block = EventBlock()
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[EventBlock]:
        """The blocks that end in this piece."""
        *lines, self._rest = self._lines(self._rest + piece)
        if len(self._rest) > LONGEST:
            raise NotEvents(f"a line has more than {LONGEST} bytes")
        return [block for line in lines if (block := self._read(line)) is not None]

    def _lines(self, text: bytes) -> list[bytes]:
        # A carriage return at the end may be the first half of a line end.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        lines[-1] += held
        return lines

    def _read(self, line: bytes) -> EventBlock | None:
        if not line:
            return self._end()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._block.name = value
            case "data":
                self._size += len(line)
                if self._size > LONGEST:
                    raise NotEvents(f"an event has more than {LONGEST} bytes")
                self._data.append(value)
            case "id" if "\x00" not in value:
                self._block.id = value
            case "retry" if value.isascii() and value.isdecimal():
                self._block.retry = int(value[:9])
            case _:  # A comment, or a field of a newer server.
                pass
        return None

    def _end(self) -> EventBlock:
        block, self._block = self._block, EventBlock()
        block.data = "\n".join(self._data)
        self._data, self._size = [], 0
        return block
