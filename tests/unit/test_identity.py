"""Ids, the hash they carry, and the shard that follows from it."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model.ids import (
    IdMaker,
    advisory_lock_key,
    hash12,
    length_prefixed,
    milliseconds_of,
    new_id,
    parse_id,
    shard_of,
)
from tests.fixtures.patience import HANG

MILLISECOND = 1_000_000
START = 1_772_366_400_000 * MILLISECOND
CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

hashes = st.integers(0, 4095)
parts = st.lists(st.text())


class Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def counter_of(made: str) -> int:
    return (UUID(made).int >> 44) & 0x3FFFF


def noise_of(made: str) -> int:
    return UUID(made).int & ((1 << 44) - 1)


# --- making them ----------------------------------------------------------------------------------


@given(st.none() | hashes)
def test_an_id_is_a_uuid_of_version_7_with_the_time_at_which_it_was_made(h: int | None) -> None:
    before = time.time_ns() // MILLISECOND
    made, own = new_id(h), IdMaker().new()
    after = time.time_ns() // MILLISECOND

    assert CANONICAL.fullmatch(made)
    assert (UUID(made).version, UUID(made).variant) == (7, RFC_4122)
    assert str(UUID(made)) == made
    assert before <= UUID(own).int >> 80 == milliseconds_of(own) <= after


@pytest.mark.parametrize("shards", [3, 8])
def test_ids_without_a_hash_are_spread_evenly_and_those_of_a_moment_are_together(
    shards: int,
) -> None:
    """Chi-square. A fair choice of shards fails once in more than 10**9 runs."""
    clock = Clock()
    maker = IdMaker(clock)
    batches = 2_000
    chosen: Counter[int] = Counter()
    for _ in range(batches):
        (shard,) = {shard_of(one, shards) for one in (maker.new(), *maker.several(3))}
        chosen[shard] += 1
        clock.now += MILLISECOND

    fair = batches / shards
    assert sum((chosen[shard] - fair) ** 2 / fair for shard in range(shards)) < 60


@pytest.mark.parametrize("h", [-1, 4096])
def test_a_hash_of_more_than_12_bits_is_refused(h: int) -> None:
    with pytest.raises(InvalidInput, match=f"hash must be from 0 to 4095, got {h}"):
        new_id(h)


@given(st.lists(st.integers(-5, 5)))
def test_ids_grow_however_the_clock_jumps(jumps: list[int]) -> None:
    clock = Clock()
    maker = IdMaker(clock)
    made = [maker.new(5)]

    for jump in jumps:
        clock.now += jump * MILLISECOND // 2
        made.append(maker.new(5))

    assert made == sorted(set(made))


def test_a_counter_that_is_used_up_borrows_the_next_millisecond() -> None:
    clock = Clock()
    maker = IdMaker(clock)
    first = maker.new(5)
    assert (1 << 18) - 1 - counter_of(first) >= 1 << 17
    maker._counter = (1 << 18) - 10

    made = [maker.new(5) for _ in range(10)]

    assert milliseconds_of(made[-2]) == START // MILLISECOND
    assert milliseconds_of(made[-1]) == START // MILLISECOND + 1
    assert made == sorted(made)
    clock.now += MILLISECOND
    assert maker.new(5) > made[-1]


def test_threads_never_make_the_same_id() -> None:
    maker = IdMaker(Clock())

    def make(_: int) -> list[str]:
        return [maker.new(5) for _ in range(500)]

    with ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(make, range(8)))

    made = [each for batch in batches for each in batch]
    assert len({counter_of(each) for each in made}) == len(made)
    assert all(batch == sorted(batch) for batch in batches)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_repeat_its_parent() -> None:
    # In a process of its own: the test runner has threads, and a fork would warn about them.
    program = """
import os
from onefold.model.ids import new_id
new_id()
reading, writing = os.pipe()
child = os.fork() == 0
made = " ".join(new_id(5) for _ in range(200))
if child:
    os.write(writing, made.encode())
    os._exit(0)
os.wait()
print(made, os.read(reading, 65536).decode())
"""
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    assert len({noise_of(each) for each in made}) == 400


def test_a_fork_in_the_middle_of_an_id_does_not_block_the_child() -> None:
    maker = IdMaker(Clock())
    with maker._lock, ThreadPoolExecutor(1) as another:
        # What the child sees: a lock that a thread which no longer exists will never give back.
        maker.reseed()
        made = another.submit(maker.new).result(timeout=HANG)

    assert CANONICAL.fullmatch(made)


def test_a_signal_handler_may_make_an_id_while_one_is_being_made() -> None:
    made: list[str] = []

    def interrupted() -> int:
        if not made:
            made.append("being made")
            made.append(maker.new(5))
        return START

    maker = IdMaker(interrupted)
    outer = maker.new(5)

    assert outer != made[1]


# --- reading them ---------------------------------------------------------------------------------


@given(hashes, st.integers(1, 4096))
def test_the_shard_is_the_remainder_of_the_hash(h: int, shards: int) -> None:
    assert shard_of(new_id(h), shards) == h % shards


@pytest.mark.parametrize("shards", [0, -1, 4097])
def test_a_number_of_shards_that_the_hash_cannot_tell_apart_is_refused(shards: int) -> None:
    with pytest.raises(InvalidInput, match="shards must be a whole number from 1 to 4096"):
        shard_of(new_id(), shards)


# --- hashes of keys -------------------------------------------------------------------------------


def test_hashes_never_change() -> None:
    # They decide on which shard a stored job lives: if this fails, the change loses keys.
    assert hash12("tenant", "kind", "key") == 504
    assert advisory_lock_key("tenant", "http", "scope", "key") == -5_735_006_885_499_842_348


@given(parts, parts)
def test_only_the_same_parts_are_the_same_bytes(left: list[str], right: list[str]) -> None:
    assert (length_prefixed(*left) == length_prefixed(*right)) == (left == right)


def test_several_ids_are_in_order_and_continue_what_was_made_before() -> None:
    maker = IdMaker(Clock())
    made = [maker.new(), *maker.several(300), maker.new()]

    assert len(set(made)) == 302
    assert made == sorted(made)
    assert [parse_id(one) for one in made] == made
    # They borrow a millisecond where one is used up.
    maker._counter = (1 << 18) - 10
    later = maker.several(64)
    assert later == sorted(later)
    assert milliseconds_of(later[0]) > milliseconds_of(made[-1])
