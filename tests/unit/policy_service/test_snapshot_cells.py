from __future__ import annotations

import pickle
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import ArmCounts, CellKey, Snapshot
from policy_service.config import PolicyConfig
from policy_service.pooling import Pooling
from policy_service.snapshot_cells import PackedCells, contexts_of

NAMES = st.sampled_from(["n=a|r=x|s=|c=0|l=0|t=0", "n=b|r=x|s=|c=0|l=0|t=0", "r=x|c=0", "global"])
KEYS = st.builds(CellKey, NAMES, st.sampled_from(["none", "a:4", "a/score1"]), st.just("v"))
CONFIG = PolicyConfig(reward="tokens")


@given(st.dictionaries(KEYS, st.integers(1, 1000), max_size=12))
def test_they_are_a_mapping_and_survive_the_journey(pulls: Mapping[CellKey, int]) -> None:
    epoch = {key: ArmCounts(pulls=count, reward_tokens=count) for key, count in pulls.items()}
    cells = Pooling(CONFIG).pool({0: epoch}, 600)
    copy = pickle.loads(pickle.dumps(Snapshot(1, 0.0, "m", cells))).cells
    assert isinstance(copy, PackedCells)
    assert dict(copy) == dict(cells)
    assert len(copy) == len(dict(copy))
    assert set(copy.contexts) == {key.context for key in copy} == set(contexts_of(dict(copy)))
    for key in copy:
        assert copy.of_context(key.context)[key.arm, key.drafter_version] == copy[key]
    assert CellKey("global", "unknown") not in copy
    assert copy.get(CellKey("n=unknown|r=x|s=|c=0|l=0|t=0", "none")) is None


def test_only_one_packing_for_all_replicas() -> None:
    cells = Pooling(CONFIG).pool({0: {CellKey("global", "none"): ArmCounts(pulls=1)}}, 0)
    assert pickle.dumps(cells) == pickle.dumps(pickle.loads(pickle.dumps(cells)))
    assert cells.num_bytes < 1000
