from __future__ import annotations

import pytest

from cluster.learnt_table import num_cells, rows

ARM = {
    "pulls": 12,
    "mean_reward": 2.5,
    "drafted": 40,
    "accepted": 10,
    "failed": 1,
    "age_s": 120.0,
}
LEARNT = {
    "contexts": {
        "n=a|r=chat|s=|c=0|l=0|t=0": {"none": {"pulls": 1, "mean_reward": 1.0, "age_s": 0.0}},
        "global": {"none": {"pulls": 1, "age_s": 7200.0}, "suffix:4@v": ARM},
    },
    "cells": {"global": {"x": {}, "y": {}}, "shadow": {"x": {}}},
}


def test_wide_contexts_and_much_played_arms_come_first() -> None:
    assert list(rows(LEARNT)) == [
        ("global", "suffix:4@v", "12", "2.500", "25%", "1", "2 min ago"),
        ("global", "none", "1", "-", "-", "0", "2 h ago"),
        ("n=a|r=chat|s=|c=0|l=0|t=0", "none", "1", "1.000", "-", "0", "now"),
    ]
    assert [row[0] for row in rows(LEARNT, "n=a")] == ["n=a|r=chat|s=|c=0|l=0|t=0"]
    assert num_cells(LEARNT) == 3


@pytest.mark.parametrize("learnt", [{}, {"contexts": None, "cells": 7}, {"contexts": {"g": 3}}])
def test_other_answers_are_no_error(learnt: dict[str, object]) -> None:
    assert list(rows(learnt)) == []
    assert num_cells(learnt) == 0
