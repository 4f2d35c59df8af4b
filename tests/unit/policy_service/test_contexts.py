from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import SHADOW, RequestFeatures
from policy_service.contexts import (
    GLOBAL,
    ContextRegistry,
    context_chain,
    is_specific,
    parent_of,
)


@given(
    st.builds(
        RequestFeatures,
        tenant=st.text(),
        route=st.text(),
        system_prompt_hash=st.text(),
        code_likeness=st.floats(0, 1),
        num_prompt_tokens=st.integers(0, 10**6),
        temperature=st.floats(0, 2),
    )
)
def test_the_chain_follows_from_the_name(features: RequestFeatures) -> None:
    chain = context_chain(features)
    assert [is_specific(context) for context in chain] == [True, False, False]
    assert [parent_of(context) for context in chain] == [*chain[1:], None]
    assert len(chain[0]) < 300


def test_tenants_are_kept_apart() -> None:
    names = ["", "acme", "acme|r=chat", "a" * 1000, "a" * 1001, "~" + "a" * 24]
    specific = {context_chain(RequestFeatures(tenant=name))[0] for name in names}
    assert len(specific) == len(names)


def test_what_only_drafters_compared_is_apart_from_the_rounds() -> None:
    assert parent_of(SHADOW) is None
    assert not is_specific(SHADOW)
    assert parent_of("another") == GLOBAL


def test_buckets() -> None:
    def last(**values: object) -> str:
        return context_chain(RequestFeatures(**values))[0].partition("|s=|")[2]  # type: ignore[arg-type]  # keyword arguments of mixed types

    assert last(code_likeness=0.04) == "c=1|l=0|t=0"
    assert last(code_likeness=1.0) == "c=2|l=0|t=0"
    assert last(num_prompt_tokens=64) == "c=0|l=1|t=0"
    assert last(num_prompt_tokens=10**6) == "c=0|l=5|t=0"
    assert [last(temperature=t)[-1] for t in (0, 0.01, 0.5, 0.6, 1.0, 1.1)] == list("011223")


def test_foreign_names_fall_to_the_root() -> None:
    assert parent_of("x=1") == GLOBAL
    assert parent_of("n=a") == GLOBAL


def chain(tenant: str) -> tuple[str, ...]:
    return context_chain(RequestFeatures(tenant=tenant))


def test_registry_admits_only_so_many() -> None:
    registry = ContextRegistry(2)
    assert registry.admit(chain("a")) == chain("a")
    assert registry.admit(chain("b")) == chain("b")
    assert registry.admit(chain("c")) == chain("c")[1:]
    assert registry.admit(chain("a")) == chain("a")
    assert len(registry) == 2


def test_pooled_contexts_come_first_and_free_places() -> None:
    registry = ContextRegistry(2)
    registry.admit(chain("a"))
    registry.refresh([chain("x")[0], chain("y")[0], chain("z")[0], GLOBAL, chain("x")[0]])
    assert registry.admit(chain("y")) == chain("y")
    assert registry.admit(chain("a")) == chain("a")[1:]
    registry.refresh([chain("x")[0]])
    assert registry.admit(chain("a")) == chain("a")
