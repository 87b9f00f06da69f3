"""Every handler of the examples, killed before its lines and its writes, and run again.

In `make soak` before each of them; else before the first, the last, and some in between.
"""

import random
from types import ModuleType

import pytest

from tests.examples.deaths import work
from tests.examples.stories import STORIES, Story, World, ready
from tests.fixtures.proof import SOAK, repetitions

DEATHS = repetitions(4, soak=1000)


@pytest.mark.parametrize(
    "story", [STORIES[0], *(pytest.param(story, marks=pytest.mark.prove) for story in STORIES[1:])]
)
@pytest.mark.timeout(1800 if SOAK else 900)
def test_a_handler_that_is_killed_anywhere_and_run_again_has_its_effect_once(
    story: Story, world: World, handlers: ModuleType
) -> None:
    first = ready(story, world, handlers, 1)
    moments = work(world, [first])
    assert moments is not None
    assert moments > 2
    jobs = {1: first}
    for moment in _some(moments):
        number = len(jobs) + 1
        jobs[number] = ready(story, world, handlers, number)
        work(world, [jobs[number]], dies_at=moment)

    work(world, list(jobs.values()))

    for number, job_id in jobs.items():
        job = handlers.onefold.get(job_id)
        assert (job.state, story.effects(world, number, job_id)) == (story.ends, story.once)


def _some(moments: int) -> list[int]:
    between = range(2, moments)
    return [1, *random.sample(between, min(DEATHS - 2, len(between))), moments]
