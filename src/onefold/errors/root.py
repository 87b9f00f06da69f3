"""The root of all errors: a sentence, and its evidence as fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class OnefoldError(Exception):
    """The root of the tree; catch it to catch everything of ours."""

    status: ClassVar[int] = 500

    def __init__(self, message: str, **evidence: object) -> None:
        """`message` is for people; `evidence` becomes the attributes of the error."""
        super().__init__(message)
        self.evidence: Mapping[str, object] = evidence
        for name, value in evidence.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling (a process pool sends errors back) whatever the constructor takes."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[OnefoldError], args: tuple[object, ...], fields: dict[str, object]
) -> OnefoldError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error
