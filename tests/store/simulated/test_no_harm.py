"""Stories of failed nodes: no healthy machine is off, no pod runs twice, operators have the last word, and are told.

``python -m tests.simulation --no-harm --seeds 100`` tells a hundred.
"""

from __future__ import annotations

import pytest

from tests.simulation.kubernetes.places import SPELLINGS
from tests.simulation.kubernetes.stories import FAILURES, MOMENTS, PROHIBITIONS, from_seed
from tests.simulation.scenario import no_harm
from tests.store.simulated.test_seeds import check


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_story_ends_without_harm_and_not_in_silence(seed: int) -> None:
    check(no_harm(seed), " --no-harm")


def test_a_hundred_stories_have_everything_in_them() -> None:
    stories = [from_seed(seed) for seed in range(1, 101)]
    assert {one.failure for one in stories} == set(FAILURES)
    assert {one.spelling for one in stories} - {""} == set(SPELLINGS)
    assert {one.prohibition for one in stories} - {""} == set(PROHIBITIONS)
    assert {one.moment for one in stories} - {""} == set(MOMENTS)
    assert {one.across for one in stories} == {True, False}
