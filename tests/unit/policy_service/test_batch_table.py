from __future__ import annotations

import numpy as np
import pytest

from policy_service.abilities import RoundContext
from policy_service.api import NONE, Arm
from policy_service.errors import PolicyConfigError
from policy_service.learners.batch_table import BatchTable
from policy_service.loading import load_learner
from policy_service.statistics import NoState

ARMS = (NONE, *(Arm("a", gamma) for gamma in (1, 2, 4)), Arm("b", 3))


def chosen(learner: BatchTable, batch_size: int, arms: tuple[Arm, ...] = ARMS) -> str:
    context = RoundContext(arms, batch_size=batch_size)
    return str(learner.select_in(NoState(), context, np.random.default_rng(0))[0])


@pytest.mark.parametrize(
    ("batch_size", "arm"),
    [(1, "a:2"), (64, "a:2"), (65, "a:1"), (128, "a:1"), (129, "none"), (9999, "none")],
)
def test_the_table_decides(batch_size: int, arm: str) -> None:
    assert chosen(BatchTable(), batch_size) == arm


def test_drafter_and_table_are_parameters() -> None:
    learner = load_learner("batch_table", {"table": [[1, 8, 16], [9, 9, 2]], "drafter": "b"})
    assert isinstance(learner, BatchTable)
    assert chosen(learner, 8) == "b:3"
    assert chosen(learner, 9) == "none", "b has no arm that short"


def test_plain_decoding_not_allowed() -> None:
    assert chosen(BatchTable(), 500, ARMS[2:]) == "a:2"


def test_without_a_batch_it_is_one_sequence() -> None:
    assert str(BatchTable().select(NoState(), ARMS, np.random.default_rng(0))[0]) == "a:2"


@pytest.mark.parametrize(
    "table",
    [
        (),
        "1-64:3",
        [[1, 64]],
        [[2, 64, 3]],
        [[1, 64, 3], [66, 128, 1]],
        [[1, 64, 3], [64, 128, 1]],
        [[1, 0, 3]],
        [[1, 64, -1]],
        [[1, 64, 1.5]],
        [[True, 64, 1]],
        7,
    ],
)
def test_bad_tables(table: object) -> None:
    with pytest.raises(PolicyConfigError, match="table of learner 'batch_table' must be rows"):
        load_learner("batch_table", {"table": table})
