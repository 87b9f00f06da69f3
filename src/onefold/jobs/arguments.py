"""Arguments of a function as a payload, and back: by name, converted by the type hints.

Arguments that do not fit the signature are rejected at the enqueue; a signature that no payload
fits (`*args`, a class that JSON cannot become) is rejected at the declaration. Defaults are stored
in the payload. A parameter annotated `Run` is filled by the worker; one annotated `Payload`
receives the whole payload.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import inspect as shapes
from msgspec.structs import asdict

from onefold.effects.run import Run
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.json_text import decode_payload, from_json, is_model, is_object, to_json
from onefold.model.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onefold.model.job import Json

_WHOLE: Final = "the whole payload"
Payload: TypeAlias = Annotated[Any, _WHOLE]
"""The annotation of the one parameter that receives the whole payload, as plain JSON.

    def handle(event: Payload): ...

`Annotated[Event, Payload]` converts it: to a struct, a dataclass, a TypedDict, a pydantic model.
"""

# The names as text, for annotations that are only imported for type checkers.
_SPELLS_RUN: Final = re.compile(
    r"(onefold\.)?Run( *\| *None)?|None *\| *(onefold\.)?Run|(typing\.)?Optional\[(onefold\.)?Run\]"
)
_SPELLS_PAYLOAD: Final = re.compile(r"(onefold\.)?Payload")
_PLACE: Final = re.compile(r" - at `(?:key in )?\$\.members(?P<path>.*)`$")
_QUOTED: Final = re.compile(r"'(\w+)'")
_POSITIONAL_ONLY: Final = inspect.Parameter.POSITIONAL_ONLY
_NO_DEFAULT: Final[Any] = inspect.Parameter.empty


class Arguments:
    """The arguments of one function."""

    def __init__(
        self, function: Callable[..., Any], name: str, *, ignores_extra: bool = False
    ) -> None:
        """Read the signature; `name` is the function's, for error messages.

        `ignores_extra` drops the members of a payload that the function does not take.
        """
        self.name: str = name
        self.run: str | None = None
        """The parameter that takes the `Run`."""
        self.whole: str | None = None
        """The parameter that takes the whole payload."""
        self._ignores_extra = ignores_extra
        self._parameters = _parameters(function, name)
        hints: dict[str, Any] = {}
        for parameter in self._parameters:
            hint = _hint(function, name, parameter.name, parameter.annotation)
            if not is_run(hint):
                hints[parameter.name] = _supported(hint, name, parameter.name)
                if _is_payload(hint):
                    self.whole = parameter.name
            elif self.run is not None:
                raise InvalidInput(name, f"takes two runs, {self.run} and {parameter.name}")
            else:
                self.run = parameter.name
        self._signature = inspect.Signature(
            [one.replace(annotation=Any) for one in self._parameters if one.name != self.run]
        )
        taken = self._signature.parameters.values()
        self.names: tuple[str, ...] = tuple(one.name for one in taken)
        """The parameters that a caller fills: the members of a payload, or the whole payload."""
        self._check_whole()
        self.members: tuple[str, ...] | None = self.names
        """The members of a payload; None if the signature does not name them."""
        if self.whole is not None:
            self.members = _members_of(hints[self.whole])
        self._names = frozenset(self.names)
        self._by_name = {one.name for one in taken if one.kind is not _POSITIONAL_ONLY}
        self._by_position = sum(one.kind is not one.KEYWORD_ONLY for one in taken)
        self._positional = [one for one in self._parameters if one.kind is _POSITIONAL_ONLY]
        self._defaults = {one.name: one.default for one in taken if one.default is not _NO_DEFAULT}
        self._with_sets = frozenset(name for name, hint in hints.items() if _holds_sets(hint))
        self._shape = _shape(hints)
        self._decoder = None if self.whole else _decoder(hints, ignores_extra=ignores_extra)
        self._check_defaults()

    def to_payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Json:
        """The payload of a call; arguments that do not fit the signature raise `InvalidInput`."""
        values = self._bound(args, kwargs)
        written: dict[str, Json] = {}
        for name in self.names:
            written[name] = to_json(values[name], name, sorts=name in self._with_sets)
        self._convert(written)
        return written if self.whole is None else written[self.whole]

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as `Signature.bind` returns them, ten times faster."""
        given = dict(zip(self.names, args, strict=False))
        fits = len(args) <= self._by_position and kwargs.keys() <= self._by_name - given.keys()
        values = {**self._defaults, **given, **kwargs}
        if fits and len(values) == len(self.names):
            return values
        # Its error message is better.
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            named = _QUOTED.search(str(error))
            raise InvalidInput(
                named[1] if named else self.name, f"is not a valid argument of {self.name}: {error}"
            ) from None
        return values  # pragma: no cover - arguments that we reject, and Python accepts

    def bind(
        self, payload: str | msgspec.Raw, run: object
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`from_payload` of JSON text."""
        if self._decoder is None:
            return self.from_payload(decode_payload(payload), run)
        try:
            values = asdict(self._decoder.decode(payload))
        except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError):
            # A default, a wide integer, or a payload that does not fit, which needs an explanation.
            return self.from_payload(decode_payload(payload), run)
        return self._call(values, run)

    def from_payload(self, payload: Json, run: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with; `run` is filled in if a parameter takes it."""
        return self._call(self._read(payload), run)

    def _call(self, values: dict[str, Any], run: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.run is not None:
            values[self.run] = run
        if not self._positional:
            return (), values
        return tuple(values.pop(one.name, one.default) for one in self._positional), values

    def _read(self, payload: Json) -> dict[str, Any]:
        if self.whole is not None:
            return self._convert({self.whole: payload})
        if not is_object(payload):
            raise InvalidInput(
                "payload",
                f"must be an object of the arguments of {self.name}. A handler for other JSON takes"
                " one parameter that is annotated Payload",
            )
        if self._ignores_extra:
            payload = {name: payload[name] for name in self.names if name in payload}
        if payload.keys() != self._names:
            self._check_members(payload)
        return self._convert(payload)

    def _check_members(self, payload: dict[str, Json]) -> None:
        for name in payload:
            if name not in self._names:
                raise InvalidInput("payload", f"has {name!r}, which {self.name} does not take")
        for name in self.names:
            if name not in payload and name not in self._defaults:
                raise InvalidInput("payload", f"has no {name!r}, which {self.name} needs")

    def _convert(self, payload: dict[str, Json]) -> dict[str, Any]:
        try:
            converted: dict[str, Any] = from_json({"members": payload}, self._shape).members
        except msgspec.ValidationError as error:
            raise _misfit(error, self.name) from None
        except TypeError as error:
            # A list or an object, in a set.
            raise InvalidInput(self.name, f"cannot read its arguments from JSON: {error}") from None
        return converted

    def _check_whole(self) -> None:
        """One parameter receives the whole payload, so there must be no other."""
        if self.whole is None:
            return
        if others := [name for name in self.names if name != self.whole]:
            raise InvalidInput(
                self.name,
                f"takes the whole payload as {self.whole}, so it cannot take {', '.join(others)}",
            )
        if self._ignores_extra:
            raise ConflictingOptions(
                "extra", f"is for arguments by name, and {self.name} takes the whole payload"
            )

    def _check_defaults(self) -> None:
        """A default is stored like any other argument, so its type must convert back."""
        for name, default in self._defaults.items():
            try:
                self._convert({name: to_json(default, name)})
            except InvalidInput as error:
                raise InvalidInput(
                    self.name, f"has a default for {name} that is not valid: {error}"
                ) from None


class Result:
    """The result of one function."""

    def __init__(self, function: Callable[..., Any], name: str, *, stored: bool) -> None:
        self._shape: Any = Any
        self.expected: bool = False
        """True if the function is annotated to return a value."""
        try:
            annotation = inspect.signature(function).return_annotation
            hint = _without_outcomes(_hint(function, name, "return", annotation))
            self.expected = annotation is not inspect.Signature.empty and hint is not type(None)
            self._shape = _shape({"result": _supported(hint, name, "return")})
        except InvalidInput:
            if stored:
                raise

    def read(self, result: Json) -> Any:
        """The result in the type that the function returned."""
        if self._shape is Any:
            return result
        try:
            return from_json({"members": {"result": result}}, self._shape).members["result"]
        except msgspec.ValidationError as error:
            raise InvalidInput("result", f"does not match the annotation: {error}") from None


def is_run(hint: Any) -> bool:
    """Whether an annotation is `Run`."""
    if get_origin(hint) in {Union, types.UnionType, Annotated}:
        return any(map(is_run, get_args(hint)))
    return isinstance(hint, type) and issubclass(hint, Run)


def _is_payload(hint: Any) -> bool:
    """Whether an annotation is `Payload`."""
    if get_origin(hint) is Annotated:
        return any(one in (_WHOLE, Payload) for one in hint.__metadata__)
    return get_origin(hint) in {Union, types.UnionType} and any(map(_is_payload, get_args(hint)))


def _members_of(hint: Any) -> tuple[str, ...] | None:
    """The members of the JSON for this type, if the type names them."""
    info = shapes.type_info(hint)
    if isinstance(info, shapes.StructType) and (info.array_like or info.tag_field):
        return None
    if isinstance(info, shapes.StructType | shapes.DataclassType | shapes.TypedDictType):
        return tuple(field.encode_name for field in info.fields)
    return None


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise InvalidInput(
                name, f"takes {parameter}: a payload has its arguments by name, so give each one"
            )
    if parameters and parameters[0].name in {"self", "cls"}:
        raise InvalidInput(
            name, "is a method, and a worker has no object to call it on. Declare a function."
        )
    return parameters


def _hint(function: Callable[..., Any], name: str, parameter: str, annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        if parameter == "run":
            raise InvalidInput(
                name,
                "takes run without an annotation. Write run: Run (from onefold import Run) for the"
                " run of the worker, or give it a type if it is an argument of yours",
            )
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter: annotation})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)[parameter]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        spelled = annotation.strip() if isinstance(annotation, str) else ""
        if _SPELLS_RUN.fullmatch(spelled):
            return Run
        if _SPELLS_PAYLOAD.fullmatch(spelled):
            return Payload
        raise InvalidInput(
            name,
            f"has an annotation for {parameter} that cannot be looked up: {error}. Import it where"
            " it is there at run time too, not under TYPE_CHECKING.",
        ) from None


def _supported(hint: Any, name: str, parameter: str) -> Any:
    """The annotation, if JSON can be converted to it."""
    if hint is object:
        return Any
    try:
        customs = [one for one in _custom_types(shapes.type_info(hint)) if not is_model(one)]
    except TypeError as error:
        raise InvalidInput(
            name, f"has an annotation for {parameter} that is not supported: {error}"
        ) from None
    if customs:
        raise InvalidInput(
            name,
            f"has an annotation for {parameter} that JSON cannot be converted to:"
            f" {customs[0].__module__}.{customs[0].__qualname__}",
        )
    return hint


def _holds_sets(hint: Any) -> bool:
    found = _types_in(shapes.type_info(hint))
    return any(isinstance(one, shapes.SetType | shapes.FrozenSetType) for one in found)


def _custom_types(info: Any) -> Iterator[type]:
    """The classes inside of an annotation that msgspec does not know."""
    for one in _types_in(info):
        if isinstance(one, shapes.CustomType):
            yield one.cls


def _types_in(info: Any) -> Iterator[shapes.Type]:
    seen: set[int] = set()
    left = [info]
    while left:
        one = left.pop()
        if isinstance(one, shapes.Type | shapes.Field) and id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, shapes.Type):
                yield one
            left += [getattr(one, field) for field in one.__struct_fields__]
        elif isinstance(one, tuple):
            left += one


def _shape(hints: dict[str, Any]) -> Any:
    """One type for all parameters, so that msgspec names the member that does not fit.

    Inside of a struct, because msgspec caches its analysis of structs only.
    """
    make: Any = TypedDict
    return msgspec.defstruct("Shape", [("members", make("Members", hints, total=False))])


_READ_ALIKE: Final = (
    shapes.AnyType, shapes.NoneType, shapes.BoolType, shapes.IntType, shapes.FloatType,
    shapes.StrType, shapes.DateTimeType, shapes.DateType, shapes.TimeType, shapes.TimeDeltaType,
    shapes.UUIDType, shapes.LiteralType, shapes.EnumType, shapes.ListType, shapes.SetType,
    shapes.FrozenSetType, shapes.VarTupleType, shapes.TupleType, shapes.DictType,
    shapes.UnionType, shapes.StructType, shapes.DataclassType, shapes.TypedDictType,
)  # fmt: skip
"""Types that are the same whether they are read from JSON text or from plain values.

Not among them: decimals, which keep the zeros of a number in the text, and pydantic's models.
"""


def _decoder(hints: dict[str, Any], *, ignores_extra: bool) -> msgspec.json.Decoder[Any] | None:
    """Reads a payload that has all parameters at once; None if a type needs the other way."""
    found = (one for hint in hints.values() for one in _types_in(shapes.type_info(hint)))
    # Names such as __dict__ mean something to a struct.
    if not all(isinstance(one, _READ_ALIKE) for one in found) or any(
        "__" in name for name in hints
    ):
        return None
    fields = list(hints.items())
    shape = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=not ignores_extra)
    return msgspec.json.Decoder(shape)


def _without_outcomes(hint: Any) -> Any:
    """Remove the outcomes from the annotation: a handler may return one instead of a result."""
    if get_origin(hint) in {Union, types.UnionType}:
        kept = tuple(one for one in get_args(hint) if not _is_outcome(one))
        return Union[kept] if kept else type(None)  # noqa: UP007 - of a tuple
    return type(None) if _is_outcome(hint) else hint


def _is_outcome(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Outcome)


def _misfit(error: msgspec.ValidationError, function: str) -> InvalidInput:
    """The message of msgspec, with the argument in front and without dollar signs."""
    message = str(error)
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    reason = message[: place.start()] if place else message
    name = re.split(r"[.\[]", path.removeprefix("."), maxsplit=1)[0]
    where = "" if path.removeprefix(".") == name else f" at {path.removeprefix('.')}"
    return InvalidInput(name or function, f"does not match {function}: {reason}{where}")
