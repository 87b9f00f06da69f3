"""Templates: what two clean runs have in common of the rows, jobs and effects they leave behind.

Some values are new in each run: numbers of a sequence, random ids. Two clean runs tell which, as
the sequences of the second one begin elsewhere. Such a value is not compared as a text. It has to
be in the same places: a payload that names a row in the clean run has to name the same row.
"""

from __future__ import annotations

import re
from collections import ChainMap, defaultdict
from itertools import groupby
from operator import eq
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence

VOLATILE: Final = "*"
LONG: Final = 8
"""Characters of a random value that no other value equals by chance."""

_LEAF: Final = re.compile(
    r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^][{}(),:=&?\s\"']+|.", re.DOTALL
)
"""A quoted text, or what is between brackets, commas and the like."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_MEANING: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
"""Escapes of Python and JSON."""
_WORD: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[^\W_]+|."
_FLOAT: Final = re.compile(r"-?\d*\.\d+(?:e[-+]?\d+)?")


class ComparedItem(msgspec.Struct, frozen=True):
    """A row, a job, an effect, or something else that a scenario left behind."""

    what: str
    """For the report: row of payment."""
    group: str
    """Its table, kind or name: what is volatile in one of them is volatile in all."""
    fields: dict[str, str]
    generated: tuple[str, ...] = ()
    """The fields that a sequence of the database makes."""
    is_stored: bool = False
    """Whether others can name it: a row or a job."""


class Generated(NamedTuple):
    """A value that each run makes anew: its texts in the two clean runs, and its column."""

    clean: str
    again: str
    column: str = ""


class OneOf(NamedTuple):
    """A part of a text: one of these values, or the literal."""

    values: tuple[Generated, ...]
    literal: str | None = None


Leaf: TypeAlias = tuple[str | OneOf, ...] | None
"""The parts of a text; None if it is volatile."""
Field: TypeAlias = str | tuple[Leaf, ...] | None
Found: TypeAlias = "MutableMapping[Generated, str]"
"""The values of a scenario."""


class Template(msgspec.Struct, frozen=True, eq=False):
    """What two clean runs have in common of an item."""

    item: ComparedItem
    fields: dict[str, Field]

    @property
    def values(self) -> Iterator[Generated]:
        """The generated values that it names."""
        for field in self.fields.values():
            for leaf in field if isinstance(field, tuple) else ():
                for part in leaf or ():
                    if isinstance(part, OneOf) and part.literal is None:
                        yield from part.values

    @property
    def skeleton(self) -> str:
        """Its fields without generated values."""
        return f"{self.item.what} {self.shown(dict.fromkeys(self.values, ''))}"

    def take(self, items: list[ComparedItem], found: Mapping[Generated, str]) -> Found | None:
        """Take the first item that it fits, given the values that are found already.

        Returns the values that are new; None if there is no such item.
        """
        if self.fields == self.item.fields:  # most rows
            if self.item not in items:
                return None
            items.remove(self.item)
            return {}
        for number, item in enumerate(items):
            new: dict[Generated, str] = {}
            known = ChainMap(new, cast("Found", found))
            if self.fields.keys() == item.fields.keys() and all(
                self.fits(name, text, known) for name, text in item.fields.items()
            ):
                del items[number]
                return new
        return None

    def fits(self, name: str, text: str, known: Found) -> bool:
        """Whether a field may have this text."""
        field = self.fields[name]
        if not isinstance(field, tuple):
            return field is None or field == text
        leaves = _leaves(text)
        return len(field) == len(leaves) and all(
            _fits(leaf, one, known) for leaf, one in zip(field, leaves, strict=True)
        )

    def shown(self, found: Mapping[Generated, str]) -> dict[str, str]:
        """Its fields, as they should be in a scenario."""
        return {name: _shown(field, found) for name, field in self.fields.items()}


def _fits(leaf: Leaf, text: str, known: Found) -> bool:
    if leaf is None:
        return True
    for number, part in enumerate(leaf):
        value = part if isinstance(part, str) else _value(part, text, leaf[number + 1 :], known)
        if value is None or not text.startswith(value):
            return False
        text = text[len(value) :]
    return not text


def _value(part: OneOf, text: str, rest: Leaf, known: Found) -> str | None:
    """What a part is at the beginning of a text; the rest of its leaf follows."""
    generated, *others = part.values
    possible = [known[each] for each in part.values if each in known]
    if part.literal is not None:
        possible.append(part.literal)
    if possible or others:
        return max(filter(text.startswith, possible), key=len, default=None)
    literals = [each for each in rest or () if isinstance(each, str)]
    length = len(generated.clean)
    if len(literals) == len(rest or ()):
        value = text[: len(text) - sum(map(len, literals))]
    elif not generated.column and literals and text.startswith(literals[0], length):
        value = text[:length]  # A random text of this length may have more than one word.
    else:
        word = re.match(_WORD, text, re.DOTALL)
        value = word.group() if word else ""
    if value:
        known[generated] = value
    return value or None


def _shown(field: Field, found: Mapping[Generated, str]) -> str:
    if not isinstance(field, tuple):
        return VOLATILE if field is None else field
    leaves = ["".join(_text(part, found) for part in leaf or (VOLATILE,)) for leaf in field]
    return "".join(f'{leaf}"' if leaf.startswith('"') else leaf for leaf in leaves)


def _text(part: str | OneOf, found: Mapping[Generated, str]) -> str:
    if isinstance(part, str):
        return part
    value = part.values[0]
    return part.literal or found.get(value, value.clean)


def _leaves(text: str) -> tuple[str, ...]:
    """The leaves of a text; a quoted one begins with a quote, and is what the quotes mean."""
    return tuple(
        f'"{_ESCAPE.sub(_unescaped, each[1:-1])}' if each[0] in "'\"" and each[1:] else each
        for each in _LEAF.findall(text)
    )


def _unescaped(match: re.Match[str]) -> str:
    code, character = match[1] or match[2], match[3]
    return chr(int(code, 16)) if code else _MEANING.get(character, character)


class _Templates:
    """Makes templates of pairs: of an item, and of the same one in another clean run."""

    def __init__(
        self,
        pairs: Sequence[tuple[ComparedItem, ComparedItem]],
        before: Collection[tuple[str, str, str]],
    ) -> None:
        self._before = before
        self._values: dict[tuple[str, str], set[Generated]] = defaultdict(set)
        self._has_equal = False
        self._word = re.compile(_WORD, re.DOTALL)
        self._volatile: set[tuple[str, str, int | None]] = set()
        stored = [pair for pair in pairs if pair[0].is_stored]
        self._add(each for pair in stored for each in self._keys(*pair))
        texts = {each for pair in stored for each in _random_texts(*pair)}
        # A link is no value of its own if it contains one.
        for _, alike in groupby(sorted(texts, key=_length), key=_length):
            self._add([each for each in alike if self._leaf(each.clean, each.again) is None])
        made = [Template(one, dict(self._fields(one, two))) for one, two in pairs]
        self.made: list[Template] = [
            Template(each.item, {name: self._masked(each, name) for name in each.fields})
            for each in made
        ]

    def _add(self, values: Iterable[Generated]) -> None:
        for each in values:
            self._values[each.clean, each.again].add(each)
        # Without autoincrement, SQLite takes the same numbers again.
        self._has_equal = any(clean == again for clean, again in self._values)
        # A random text may have any characters.
        texts = {text for pair in self._values for text in pair if not _is_word(text)}
        longest_first = map(re.escape, sorted(texts, key=len, reverse=True))
        self._word = re.compile("|".join([*longest_first, _WORD]), re.DOTALL)

    def _keys(self, one: ComparedItem, two: ComparedItem) -> Iterator[Generated]:
        for name in one.generated:
            if (value := self._key(one, two, name)) is not None:
                yield value

    def _key(self, one: ComparedItem, two: ComparedItem, name: str) -> Generated | None:
        """The key that a sequence has made for a row of this run."""
        text = one.fields[name]
        if name not in one.generated or (one.what, name, text) in self._before:
            return None
        return Generated(text, two.fields.get(name, text), f"{one.group}.{name}")

    def _fields(self, one: ComparedItem, two: ComparedItem) -> Iterator[tuple[str, Field]]:
        for name, text in one.fields.items():
            if name in one.generated:
                value = self._key(one, two, name)
                yield name, text if value is None else ((OneOf((value,)),),)
                continue
            leaves, others = _leaves(text), _leaves(two.fields.get(name, ""))
            if len(leaves) != len(others):
                self._volatile.add((one.group, name, None))
                yield name, None
                continue
            made = tuple(map(self._leaf, leaves, others))
            for number, leaf in enumerate(made):
                if leaf is None:
                    self._volatile.add((one.group, name, number))
            yield name, made

    def _leaf(self, clean: str, again: str) -> Leaf:
        """Equal words and generated values; None if other words differ."""
        if clean == again and not self._has_equal:
            return (clean,)
        words, others = self._word.findall(clean), self._word.findall(again)
        if len(words) != len(others):
            return None
        parts: list[str | OneOf] = []
        for pair in zip(words, others, strict=True):
            literal = pair[0] if pair[0] == pair[1] else None
            values = tuple(sorted(self._values.get(pair, ())))
            if values:
                parts.append(OneOf(values, literal))
            elif literal is not None:
                parts.append(literal)
            else:
                return None
        return tuple(parts)

    def _masked(self, template: Template, name: str) -> Field:
        """Without what is volatile in another item of the group; a text if it is always one."""
        field, group = template.fields[name], template.item.group
        if not isinstance(field, tuple):
            return field
        if (group, name, None) in self._volatile:
            return None
        leaves = tuple(
            None if (group, name, number) in self._volatile else leaf
            for number, leaf in enumerate(field)
        )
        parts = [part for leaf in leaves for part in leaf or (None,)]
        is_literal = all(isinstance(part, str) for part in parts)
        return template.item.fields[name] if is_literal else leaves


def _random_texts(one: ComparedItem, two: ComparedItem) -> Iterator[Generated]:
    """What differs, and is no short number and no duration: two equal ones are the same value."""
    for name, text in one.fields.items():
        leaves = _leaves(text), _leaves(two.fields.get(name, ""))
        for pair in zip(*leaves, strict=False) if len(leaves[0]) == len(leaves[1]) else ():
            clean, again = (each.removeprefix('"') for each in pair)
            if clean != again and _is_random(clean) and _is_random(again):
                yield Generated(clean, again)


def _is_random(text: str) -> bool:
    return len(text) >= LONG and VOLATILE not in text and not _FLOAT.fullmatch(text)


def _is_word(text: str) -> bool:
    return re.fullmatch(_WORD, text, re.DOTALL) is not None


def _length(value: Generated) -> int:
    return len(value.clean)


def _paired(
    clean: Sequence[ComparedItem], again: Sequence[ComparedItem]
) -> list[tuple[ComparedItem, ComparedItem]]:
    """Each item of a run with that of another run which is most like it."""
    rest: dict[str, list[ComparedItem]] = defaultdict(list)
    for item in again:
        rest[item.what].append(item)
    near: dict[int, ComparedItem] = {}
    leaves = {id(each): _all_leaves(each) for each in (*clean, *again)}
    for item in clean:
        if item in rest[item.what]:
            rest[item.what].remove(item)
            near[id(item)] = item
    for item in clean:
        others = rest[item.what]
        if id(item) not in near and others:
            equal = [sum(map(eq, leaves[id(item)], leaves[id(other)])) for other in others]
            near[id(item)] = others.pop(equal.index(max(equal)))
    return [(item, near.get(id(item), item)) for item in clean]


def _all_leaves(item: ComparedItem) -> list[str]:
    return [leaf for text in item.fields.values() for leaf in _leaves(text)]


def templates(
    clean: Sequence[ComparedItem],
    again: Sequence[ComparedItem],
    before: Collection[tuple[str, str, str]],
) -> list[Template]:
    """The templates of the items of a clean run. `again` are those of another clean run.

    `before` are the keys that were there before the run: what, field and text.
    """
    return _Templates(_paired(clean, again), before).made
