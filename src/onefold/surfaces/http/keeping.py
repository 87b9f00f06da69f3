"""What lies in the database of an answer: redacted, entombed, sealed, as a policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.surfaces.http.answer import UnreadableAnswer, entomb, from_stored, to_stored
from onefold.surfaces.http.sealing import is_sealed

if TYPE_CHECKING:
    from onefold.model.claim import ClaimKey
    from onefold.surfaces.http.answer import Answer, Stored
    from onefold.surfaces.http.policy import Policy


def written(answer: Answer, policy: Policy, key: ClaimKey) -> str:
    """What is stored of an answer: text that is JSON, sealed or not."""
    shown = _unmarked(answer if policy.redact is None else policy.redact(answer), policy.marker)
    if policy.stream == "tombstone":
        text = entomb(shown.status, shown.headers, policy.kept, sha256="", length=0)
    else:
        text = to_stored(shown, policy.kept)
    if policy.sealing is None:
        return text
    sealed = policy.sealing.seal(text, place=_place(key))
    return msgspec.json.encode(sealed).decode()


def _unmarked(answer: Answer, marker: str) -> Answer:
    """Whether it is a replay is said of each sending anew."""
    left = tuple(header for header in answer.headers if header[0].lower() != marker.lower())
    return msgspec.structs.replace(answer, headers=left)


def read(result: object, policy: Policy, key: ClaimKey) -> Stored:
    """What was stored, given the JSON value of it; `UnreadableAnswer` where it cannot be read."""
    if not isinstance(result, str) or not is_sealed(result):
        return from_stored(result)
    if policy.sealing is None:
        raise UnreadableAnswer("is sealed, and this route has no keys to open it")
    return from_stored(policy.sealing.open(result, place=_place(key)))


def _place(key: ClaimKey) -> str:
    """Where an answer belongs: sealed, it opens nowhere else."""
    return f"{key.tenant}\0{key.surface}\0{key.scope}\0{key.key}"
