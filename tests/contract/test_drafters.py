"""What every file in ``drafters/methods`` must do; found by file name, so new ones are included."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafters.api import Drafter, NoiseKey, SessionContext
from drafters.checking import malformed_draft
from drafters.config import DrafterConfig
from drafters.datastore.builder import Vocabulary, build_datastore
from drafters.errors import DrafterConfigError, UnknownSessionError
from drafters.loading import load_drafter, method_names
from tests.unit.drafters.draft_models import save_draft_model

VOCAB_SIZE = 50

Params = Callable[[str], dict[str, Any]]


def rest_params(folder: Path) -> dict[str, Any]:
    path = folder / "datastore"
    build_datastore(path, Vocabulary("small", VOCAB_SIZE, "f" * 64), [text(1), text(2), text(3)])
    return {"datastore": str(path)}


def draft_model_params(folder: Path) -> dict[str, Any]:
    return {"model": str(save_draft_model("llama", folder, VOCAB_SIZE))}


MAKE_PARAMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "draft_model": draft_model_params,
    "rest": rest_params,
}
"""For methods that have no default for all parameters: what makes some, in an empty folder."""


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> Params:
    """Parameters with which a method can be made, by its name."""
    made: dict[str, dict[str, Any]] = {}

    def params_of(method: str) -> dict[str, Any]:
        if method in MAKE_PARAMS and method not in made:
            made[method] = MAKE_PARAMS[method](tmp_path_factory.mktemp(method))
        return made.get(method, {})

    return params_of


@pytest.fixture(params=method_names())
def drafter(request: pytest.FixtureRequest, params: Params) -> Drafter:
    return load_drafter(DrafterConfig(method=request.param, params=params(request.param)))


def context(token_ids: list[int]) -> SessionContext:
    return SessionContext(tuple(token_ids), min(4, len(token_ids)), NoiseKey(7, 0, 0.0))


def text(seed: int, length: int = 120) -> list[int]:
    """Tokens with enough repetition that every method finds something."""
    rng = random.Random(seed)
    phrases = [[rng.randrange(VOCAB_SIZE) for _ in range(6)] for _ in range(4)]
    return [token for _ in range(length // 6) for token in rng.choice(phrases)]


def test_methods_are_found() -> None:
    assert "prompt_lookup" in method_names()


def test_a_session_that_missed_rounds_equals_a_fresh_one(drafter: Drafter) -> None:
    """AD-9: catching up after rounds of other arms leaves no holes."""
    token_ids = text(1)
    drafter.open("kept", context(token_ids[:20]))
    drafter.propose([("kept", 4)])
    drafter.extend("kept", token_ids[20:25])
    drafter.propose([("kept", 4)])
    drafter.extend("kept", token_ids[25:])
    drafter.open("fresh", context(token_ids))
    kept, fresh = drafter.propose([("kept", 8), ("fresh", 8)])
    assert kept.token_ids == fresh.token_ids
    assert kept.parents == fresh.parents
    assert drafter.position("kept") == len(token_ids)


def test_drafts_are_well_formed_and_within_the_size(drafter: Drafter) -> None:
    drafter.open("a", context(text(2)))
    for most in (1, 2, 7, drafter.max_tokens, drafter.max_tokens + 5):
        (draft,) = drafter.propose([("a", most)])
        assert malformed_draft(draft, min(most, drafter.max_tokens), VOCAB_SIZE) is None


def test_proposing_changes_nothing(drafter: Drafter) -> None:
    drafter.open("a", context(text(3)))
    first = drafter.propose([("a", 5)])[0].token_ids
    assert drafter.propose([("a", 5)])[0].token_ids == first
    assert drafter.position("a") == len(text(3))


def test_sessions_do_not_touch_each_other(drafter: Drafter) -> None:
    drafter.open("a", context(text(4)))
    alone = drafter.propose([("a", 5)])[0].token_ids
    drafter.open("b", context(text(5)))
    drafter.extend("b", [1, 2, 3])
    b, a = drafter.propose([("b", 5), ("a", 5)])
    assert a.token_ids == alone
    drafter.close("b")
    assert drafter.propose([("a", 5)])[0].token_ids == alone
    assert len(b) <= 5


def test_opening_again_starts_anew(drafter: Drafter) -> None:
    drafter.open("a", context(text(6)))
    drafter.open("a", context(text(7)))
    drafter.open("fresh", context(text(7)))
    again, fresh = drafter.propose([("a", 5), ("fresh", 5)])
    assert again.token_ids == fresh.token_ids


def test_the_shortest_context_is_no_error(drafter: Drafter) -> None:
    drafter.open("a", context([3]))
    assert drafter.position("a") == 1
    assert len(drafter.propose([("a", 3)])) == 1


def test_unknown_sessions(drafter: Drafter) -> None:
    assert drafter.position("nobody") == 0
    with pytest.raises(UnknownSessionError):
        drafter.extend("nobody", [1])
    with pytest.raises(UnknownSessionError):
        drafter.propose([("nobody", 1)])
    drafter.close("nobody")
    drafter.open("a", context([1, 2]))
    drafter.close("a")
    drafter.close("a")
    assert drafter.position("a") == 0


def test_says_what_it_is(drafter: Drafter) -> None:
    assert drafter.version
    assert drafter.max_tokens >= 1


@pytest.mark.parametrize("method", method_names())
def test_unknown_parameters_are_refused(method: str, params: Params) -> None:
    wrong = {**params(method), "no_such_parameter": 1}
    with pytest.raises(DrafterConfigError, match="no_such_parameter"):
        load_drafter(DrafterConfig(method=method, params=wrong))


@pytest.mark.parametrize("method", sorted(MAKE_PARAMS))
def test_what_a_method_cannot_do_without_is_named(method: str, params: Params) -> None:
    for name in params(method):
        rest = {other: value for other, value in params(method).items() if other != name}
        with pytest.raises(DrafterConfigError, match=f"{method}: parameter '{name}' is required"):
            load_drafter(DrafterConfig(method=method, params=rest))
