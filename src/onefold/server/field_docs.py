"""The descriptions of the fields of structs: the docstring under each field, read from the source.

So each description stands at its field only. msgspec itself does not see these docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_origin

import msgspec

from onefold.model.wire import camel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PYTHON: Final[Mapping[str, str]] = {"None": "null", "True": "true", "False": "false"}
_WORD: Final = re.compile(r"\b(?:None|True|False)\b")
_NAME: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def described_structs(kinds: Iterable[Any]) -> Mapping[str, Mapping[str, str]]:
    """The descriptions by the names of structs, then by the names of members in JSON.

    The structs are those of `kinds`, and all that they contain.
    """
    found: dict[str, Mapping[str, str]] = {}
    for info in _structs(msgspec.inspect.multi_type_info(kinds), set()):
        kind: type = get_origin(info.cls) or info.cls  # a generic struct has parameters
        texts = descriptions(kind)
        found[kind.__name__] = {
            field.encode_name: texts[field.name] for field in info.fields if field.name in texts
        }
    return found


def descriptions(kind: type) -> Mapping[str, str]:
    """The descriptions of the fields of a struct, by their names in Python; bases included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            found |= _classes(base.__module__).get(base.__name__, {})
    return found


@cache
def _classes(module: str) -> Mapping[str, Mapping[str, str]]:
    """The docstrings of a module under its fields, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: dict(_fields(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(found.body, found.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(written))),
            ):
                yield name, on_the_wire(inspect.cleandoc(written))
            case _:
                pass


def on_the_wire(text: str) -> str:
    """A text about values of Python, in the words of JSON: null, true, `uniqueFor`."""
    joined = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    plain = _WORD.sub(lambda word: _PYTHON[word[0]], joined)
    return _NAME.sub(lambda name: f"`{camel(name[1])}`", plain)


def _structs(types: Iterable[Any], seen: set[type]) -> Iterator[msgspec.inspect.StructType]:
    for each in types:
        match each:
            case msgspec.inspect.StructType(cls=kind):
                if kind not in seen:
                    seen.add(kind)
                    yield each
                    yield from _structs([field.type for field in each.fields], seen)
            case msgspec.inspect.UnionType(types=inner):
                yield from _structs(inner, seen)
            case msgspec.inspect.Metadata(type=one):
                yield from _structs([one], seen)
            case (
                msgspec.inspect.ListType(item_type=one)
                | msgspec.inspect.VarTupleType(item_type=one)
            ):
                yield from _structs([one], seen)
            case _:
                pass
