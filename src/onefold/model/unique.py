"""Keys derived from payloads, and fingerprints that tell a retry from a different request.

A derived key must be equal in all languages and all releases: it is SHA-256 over canonical JSON. A
fingerprint is compared only with stored ones, from here or from SQL, so sorted JSON is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.ids import common_parts, key_digest, length_prefixed
from onefold.model.json_text import (
    canonical_json,
    decode_payload,
    is_array,
    is_object,
    read_payload,
    sorted_json,
)
from onefold.model.timestamps import span, to_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Path: TypeAlias = tuple[str | int, ...]
"""Names of members and indexes of elements, from outside to inside. Empty: the whole value."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_MISSING: Final = object()
_SHOWN: Final = 10
"""Members of a payload that an error names."""
FINGERPRINT_DIGITS: Final = 32

# A plain name, or brackets with an index or a quoted name.
_STEP: Final = re.compile(
    r"""(?P<name>[^.\[\]"]+) | \[(?P<index>[0-9]{1,9})\] | \["(?P<quoted>(?:[^"\\]|\\.)*)"\]""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Unique:
    """How the unique key of a job follows from its payload.

    `Unique("to", "user.id")` picks these fields, keeping their nesting. A field that the payload
    does not have is an `InvalidInput`; with `missing="ignore"` it is left out, and payloads that
    have none of the fields share one key. `Unique()` takes the whole payload,
    `Unique(exclude="sent_at")` all but that. `bucket` adds the time, rounded down to that width: a
    new key in every such span. `key` is a function of kind and payload that makes the whole key by
    itself.

    A field is a dotted path: `items[0]` is an element of a list, `user["first.name"]` a member
    whose name has a dot in it, and a path may begin with a dot. Excluded paths are removed one
    after the other, so an index counts what the ones before it left.
    """

    fields: tuple[str, ...]
    exclude: tuple[str, ...]
    bucket: timedelta | None
    rule: Callable[[str, Any], str] | None
    missing: Literal["error", "ignore"]
    _picks: tuple[Path, ...] = field(compare=False)
    _drops: tuple[Path, ...] = field(compare=False)
    _flat: frozenset[str] = field(compare=False)
    """The fields, if all of them are plain names."""

    def __init__(
        self,
        *fields: str,
        exclude: str | Sequence[str] = (),
        bucket: timedelta | None = None,
        key: Callable[[str, Any], str] | None = None,
        missing: Literal["error", "ignore"] = "error",
    ) -> None:
        """`fields` and `exclude` contradict each other; `key` contradicts everything else."""
        excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        if fields and excluded:
            raise ConflictingOptions("exclude", "cannot be given together with fields to pick")
        if key is not None and (fields or excluded or bucket is not None):
            raise ConflictingOptions("key", "makes the whole key, so it takes no other option")
        if missing not in ("error", "ignore"):
            raise InvalidInput("missing", f'must be "error" or "ignore", got {missing!r}')
        if missing == "ignore" and not fields:
            raise ConflictingOptions("missing", '"ignore" needs fields to pick')
        if bucket is not None and span(bucket, "bucket", least=_MILLISECOND) % 1000:
            raise InvalidInput("bucket", f"must be a whole number of milliseconds, got {bucket}")
        for name, value in (
            ("fields", fields),
            ("exclude", excluded),
            ("bucket", bucket),
            ("rule", key),
            ("missing", missing),
            ("_picks", tuple(field_path(path, "unique") for path in fields)),
            ("_drops", tuple(field_path(path, "exclude") for path in excluded)),
            ("_flat", frozenset(() if any(set(path) & set('.["') for path in fields) else fields)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """As code."""
        options = [repr(path) for path in self.fields]
        if self.exclude:
            options.append(f"exclude={self.exclude!r}")
        if self.bucket is not None:
            options.append(f"bucket={self.bucket!r}")
        if self.rule is not None:
            options.append(f"key={self.rule!r}")
        if self.missing != "error":
            options.append(f"missing={self.missing!r}")
        return f"Unique({', '.join(options)})"

    def key(self, kind: str, payload: Any, *, now: datetime | None = None) -> str:
        """The key of a job: the kind, a colon, and SHA-256 of the selected fields.

        `now` decides the bucket; the default is the clock of this machine.
        """
        if not kind:
            raise InvalidInput("kind", "must not be empty")
        if self.rule is not None:
            return checks.key(self.rule(kind, payload), "unique")
        return self.key_of_json(kind, sorted_json(*read_payload(payload)), now=now)

    def key_of_json(self, kind: str, payload: bytes, *, now: datetime | None = None) -> str:
        """The key of a payload that is sorted JSON.

        JSON, so that a datetime and its text are the same field. Sorted, because the order of a set
        differs between processes.
        """
        hashed = self._select(kind, decode_payload(payload))
        if self.bucket is not None:
            hashed = _with_bucket(hashed, self.bucket, now)
        return f"{kind}:{sha256(canonical_json(hashed)).hexdigest()}"

    def _select(self, kind: str, payload: Any) -> Any:
        if self._flat and is_object(payload) and payload.keys() >= self._flat:
            return {name: payload[name] for name in self._flat}
        for path in self._drops:
            payload = _without(payload, path)
        if not self._picks:
            return payload
        picked = _pick(payload, self._picks)
        if self.missing == "error":
            for name, path in zip(self.fields, self._picks, strict=True):
                if _find(payload, path) is _MISSING:
                    raise _misses(kind, name, path, payload)
        return picked


def fingerprint(*parts: str) -> str:
    """A digest of the parts, in order; a different split of the same text has another digest.

    The first half of SHA-256: `onefold_enqueue` on PostgreSQL computes the same.
    """
    return sha256(length_prefixed(*parts)).hexdigest()[:FINGERPRINT_DIGITS]


def payload_fingerprint(payload: bytes, *parts: str) -> str:
    """The fingerprint of the parts and of a payload that is sorted JSON."""
    return key_digest(common_parts(*parts), payload)[:FINGERPRINT_DIGITS]


def request_fingerprint(*parts: str, payload: Any) -> str:
    """A digest of a request: its kind (and queue), and its payload in any member order."""
    return payload_fingerprint(sorted_json(*read_payload(payload)), *parts)


def field_at(payload: Any, path: Path) -> Any:
    """The value of the payload at a path; None if there is none."""
    found = _find(payload, path)
    return None if found is _MISSING else found


def field_path(path: object, owner: str) -> Path:
    """Parse a dotted path; an invalid one is an `InvalidInput` of `owner`."""
    if not isinstance(path, str):
        raise InvalidInput(owner, f"needs paths that are strings, got {path!r}")
    if path == ".":
        return ()
    steps: list[str | int] = []
    position = int(path.startswith("."))
    while step := _STEP.match(path, position):
        if step["index"] is not None:
            steps.append(int(step["index"]))
        else:
            steps.append(step["name"] or _ESCAPE.sub(r"\1", step["quoted"]))
        position = step.end()
        if position == len(path):
            return tuple(steps)
        if path[position] == ".":
            position += 1
        elif path[position] != "[":
            break
    raise InvalidInput(
        owner, f'has a path that cannot be read: {path!r} (like a.b, a[0], a["b.c"])'
    )


def _pick(payload: Any, paths: tuple[Path, ...]) -> Any:
    """The selected parts, nested as in the payload; `{}` if there are none."""
    picked: Any = _MISSING
    for path in paths:
        if not path:
            return payload
        # Otherwise all such jobs would silently share one key.
        if isinstance(path[0], str) and not is_object(payload):
            raise InvalidInput(
                "unique", "needs a payload that is a JSON object when fields are picked"
            )
        if isinstance(path[0], int) and not is_array(payload):
            raise InvalidInput(
                "unique", "needs a payload that is a JSON array when elements are picked"
            )
        value = _find(payload, path)
        if value is not _MISSING:
            picked = _placed(picked, path, value)
    return {} if picked is _MISSING else picked


def _misses(kind: str, name: str, path: Path, payload: Any) -> InvalidInput:
    """A missing field: all jobs without it would be duplicates of the first."""
    depth = next(n for n in range(len(path)) if _find(payload, path[: n + 1]) is _MISSING)
    container = _find(payload, path[:depth])
    if is_object(container):
        known = [*map(repr, list(container)[:_SHOWN]), *["…"] * (len(container) > _SHOWN)]
        there = f"has {', '.join(known)}" if known else "has no members"
    else:
        there = f"has {len(container)} elements" if is_array(container) else "is no object or list"
    where = "It" if depth == 0 else f"Its {path[depth - 1]!r}"
    return InvalidInput(
        "unique",
        f"names {name!r}, which the payload of {kind!r} does not have. {where} {there}. Correct the"
        ' field, or leave it out of the key where it is missing: Unique(…, missing="ignore")',
    )


def _find(value: Any, path: Path) -> Any:
    for step in path:
        if not _has(value, step):
            return _MISSING
        value = value[step]
    return value


def _has(container: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return is_object(container) and step in container
    return is_array(container) and step < len(container)


def _placed(container: Any, path: Path, value: Any) -> Any:
    """The container with the value at the path; missing containers are made."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        members = container if is_object(container) else {}
        members[step] = _placed(members.get(step), rest, value)
        return members
    elements = container if is_array(container) else []
    # The index is part of the selection, so the elements before it are filled.
    elements.extend([None] * (step + 1 - len(elements)))
    elements[step] = _placed(elements[step], rest, value)
    return elements


def _without(payload: Any, path: Path) -> Any:
    """The payload without the value at the path, if it has one."""
    if not path:
        return None
    parent = _find(payload, path[:-1])
    if _has(parent, path[-1]):
        del parent[path[-1]]
    return payload


def _with_bucket(hashed: Any, width: timedelta, now: datetime | None) -> dict[str, Any]:
    if not is_object(hashed):
        raise InvalidInput("bucket", "needs a payload that is a JSON object")
    if "bucket" in hashed:
        raise InvalidInput("bucket", 'collides with the member "bucket" of the payload')
    moment = to_micros(datetime.now(UTC) if now is None else now, "now") // 1000
    return {**hashed, "bucket": moment - moment % (width // _MILLISECOND)}
