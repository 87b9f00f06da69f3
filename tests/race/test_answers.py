"""Answers about keys, from several processes of which one is killed, compared with the tables."""

from collections import defaultdict
from pathlib import Path
from random import getrandbits
from typing import Any

import msgspec
import pytest

from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.race import answers, audit
from tests.race.answers import Answered, Did, Freed, Line, Undone
from tests.race.crew import DEADLINE, Crew, processes, values

TURNS = repetitions(1, soak=20)
STEPS = repetitions(80, soak=1_000)


def test_no_answer_about_a_key_is_wrong_whoever_is_killed(
    place: Place, crew: Crew, tmp_path: Path
) -> None:
    audit.install(place)
    lines: list[Line] = []
    for turn in range(TURNS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        game = answers.Game(str(folder), str(getrandbits(64)), turn)
        victim = start_victim(place, game)
        values(crew.race(place, answers.press, game, STEPS, victim))
        lines += answers.read(folder)
        check(place, lines)
    assert any(isinstance(line, Answered) and line.duplicate for line in lines)
    assert any(isinstance(line, Did) and not line.won for line in lines)


def start_victim(place: Place, game: answers.Game) -> int:
    """A process that makes the same calls until it is killed."""
    context = processes()
    ours, theirs = context.Pipe()
    arguments = (theirs, place, game)
    process = context.Process(target=answers.press_until_killed, args=arguments, daemon=True)
    process.start()
    assert ours.poll(DEADLINE), "the process that is to be killed has not begun"
    ours.recv()
    assert process.pid is not None
    return process.pid


def check(place: Place, lines: list[Line]) -> None:
    """Everything that was answered is true of the tables, and of every moment before."""
    changes = audit.read(place)
    answered = [line for line in lines if isinstance(line, Answered)]
    new = {line.id for line in answered if not line.duplicate}
    undone = {each for line in lines if isinstance(line, Undone) for each in line.ids}
    # One holder at a time, at every moment; nothing stored and lost; nothing rolled back and kept.
    audit.check(changes, audit.Books(new, undone, set()))
    stored = {change.id: change for change in changes if change.was is None}
    numbers = [audit.number(change.payload) for change in stored.values()]
    assert len(numbers) == len(set(numbers)), "a call has stored two jobs"
    for line in answered:
        check_answer(line, stored)
    check_released(lines, answered)
    check_publish_keys(place, answered, set(stored))
    if place.on_postgres:
        check_publish_keys_of_released(place, lines, stored)
    check_once([line for line in lines if isinstance(line, Did)])


def check_answer(line: Answered, stored: dict[str, audit.Change]) -> None:
    """A job that exists, by the call's own number or under the call's own key."""
    assert line.id in stored, f"the answer is a job that does not exist: {line}"
    change = stored[line.id]
    if not line.duplicate:
        assert audit.number(change.payload) == line.number, f"another call's job: {line}"
    elif line.publish is None:
        assert change.key is not None, f"the answer is a job without a key: {line}"
        assert change.key[1] == line.key, f"the answer holds another key: {line}, {change}"


def check_released(lines: list[Line], answered: list[Answered]) -> None:
    """No holder that had given up its key before the call began."""
    released: dict[str, dict[str, int]] = defaultdict(dict)
    for line in lines:
        if isinstance(line, Freed):
            for each in line.ids:
                released[line.scope].setdefault(each, line.at)
    for line in answered:
        if not line.duplicate or not line.is_fresh or line.publish or line.key is None:
            continue
        scope = line.key.partition(" ")[0]
        at = released[scope].get(line.id) if scope in {"queued", "active"} else None
        assert at is None or at >= line.began, f"the key was free before the call: {line}, {at}"


def check_publish_keys(place: Place, answered: list[Answered], stored: set[str]) -> None:
    """A publish key stands for one job, which exists."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for line in answered:
        if line.publish is not None:
            jobs[line.publish].add(line.id)
    rows = place.rows("select key, result from {claim} where surface = 'publish' and state = 1")
    for key, job_id in rows:
        assert job_id in stored, f"{key} stands for a job that does not exist: {job_id}"
        jobs[key].add(job_id)
    several = {key: ids for key, ids in jobs.items() if len(ids) > 1}
    assert not several, f"publish keys with several jobs: {several}"
    assert len(rows) == len(jobs), "a publish key that was answered for is not stored"


def check_publish_keys_of_released(
    place: Place, lines: list[Line], stored: dict[str, audit.Change]
) -> None:
    """No publish key was stored for a holder that had given up its unique key before."""
    released = {
        (line.scope, each): line.wall
        for line in lines
        if isinstance(line, Freed)
        for each in line.ids
    }
    stale = {line.publish for line in lines if isinstance(line, Answered) and not line.is_fresh}
    query = "select key, result, created_at from {claim} where surface = 'publish' and state = 1"
    for key, job_id, created_at in place.rows(query):
        unique = stored[job_id].key
        scope = unique[1].partition(" ")[0] if unique else ""
        at = released.get((scope, job_id))
        known = key in stale or at is None or at >= created_at
        assert known, f"the holder had given up its key: {key}, {stored[job_id]}"


def check_once(did: list[Did]) -> None:
    """One winner of a key, and its result for all others."""
    tokens: dict[str, set[str]] = defaultdict(set)
    winners: dict[str, int] = defaultdict(int)
    for line in did:
        tokens[line.key].add(line.token)
        winners[line.key] += line.won
    assert all(len(found) == 1 for found in tokens.values()), f"several results: {tokens}"
    assert all(count <= 1 for count in winners.values()), f"several winners: {winners}"


def answer(**options: Any) -> Answered:
    usual = Answered(7, "a", duplicate=True, key="active 1", publish=None, began=100, is_fresh=True)
    return msgspec.structs.replace(usual, **options)


def change(key: str, number: int) -> audit.Change:
    payload = f'{{"number": {number}}}'
    return audit.Change(
        1, "a", ("k", key), None, 0, held=False, holds=True, fence=0, payload=payload,
        next=None, next_was=None, payload_was="",
    )  # fmt: skip


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    stored = {"a": change("active 1", 7)}
    won, other = Did("k", "1", won=True), Did("k", "2", won=False)
    check_answer(answer(), stored)
    check_released([Freed("active", ["a"], 101, 0), Freed("queued", ["a"], 99, 0)], [answer()])
    check_once([won, Did("k", "1", won=False)])
    wrong: list[tuple[Any, str]] = [
        (lambda: check_answer(answer(id="b"), stored), "does not exist"),
        (lambda: check_answer(answer(key="active 2"), stored), "another key"),
        (lambda: check_answer(answer(duplicate=False, number=8), stored), "another call's job"),
        (lambda: check_released([Freed("active", ["a"], 99, 0)], [answer()]), "free before"),
        (lambda: check_once([won, won]), "several winners"),
        (lambda: check_once([won, other]), "several results"),
    ]
    for check_it, sentence in wrong:
        with pytest.raises(AssertionError, match=sentence):
            check_it()
    # A line that a kill has cut off is left out.
    text = msgspec.json.encode(Undone(["a"]))
    (tmp_path / "0").write_bytes(text + b"\n" + text[:-3])
    assert answers.read(tmp_path) == [Undone(["a"])]
