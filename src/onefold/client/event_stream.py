"""Server-sent events, read piece by piece, as the HTML standard has them. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

LONGEST: Final = 1024 * 1024
"""Bytes of one line, or of one event's data; ours have a few hundred."""


class NotEvents(Exception):
    """What came is no stream of events."""


class Block(msgspec.Struct):
    """The lines up to an empty one."""

    name: str = "message"
    data: str = ""
    """Empty where the block is no event."""
    id: str | None = None
    retry: int | None = None
    """Milliseconds."""


class EventStream:
    """Takes bytes as they come; gives blocks as they are whole."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._rest = b""
        self._block = Block()
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Block]:
        """The blocks that end in this piece."""
        *lines, self._rest = self._lines(self._rest + piece)
        if len(self._rest) > LONGEST:
            raise NotEvents(f"a line has more than {LONGEST} bytes")
        return [block for line in lines if (block := self._read(line)) is not None]

    def _lines(self, text: bytes) -> list[bytes]:
        # A carriage return at the end may be one half of a line's end.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        lines[-1] += held
        return lines

    def _read(self, line: bytes) -> Block | None:
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
            case _:  # A comment, or what a newer server says.
                pass
        return None

    def _end(self) -> Block:
        block, self._block = self._block, Block()
        block.data = "\n".join(self._data)
        self._data, self._size = [], 0
        return block
