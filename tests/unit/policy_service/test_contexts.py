from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import SHADOW, RequestFeatures
from policy_service.contexts import (
    GLOBAL,
    ContextRegistry,
    context_chain,
    is_of_whole_tenant,
    is_specific,
    of_whole_tenant,
    parent_of,
    tenant_of,
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


def of(tenant: str, system: int) -> tuple[str, ...]:
    return context_chain(RequestFeatures(tenant=tenant, system_prompt_hash=str(system)))


def test_a_tenant_cannot_take_all_places() -> None:
    registry = ContextRegistry(10, max_per_tenant=3)
    admitted = [registry.admit(of("greedy", n)) for n in range(50)]
    assert [chain[0] for chain in admitted[:3]] == [of("greedy", n)[0] for n in range(3)]
    wide = "n=greedy|r=completions|c=0"
    assert set(admitted[3:]) == {(wide, *of("greedy", 0)[1:])}
    assert registry.admit(of("modest", 0)) == of("modest", 0)
    assert len(registry) == 5


def test_without_any_place_the_parent_counts() -> None:
    registry = ContextRegistry(2, max_per_tenant=1)
    registry.admit(of("a", 0))
    registry.admit(of("b", 0))
    assert registry.admit(of("a", 1)) == of("a", 1)[1:]


def test_the_pool_does_not_bring_a_tenant_above_its_share() -> None:
    registry = ContextRegistry(10, max_per_tenant=2)
    registry.refresh([of("greedy", n)[0] for n in range(9)])
    assert len(registry) == 2
    assert registry.admit(of("greedy", 1)) == of("greedy", 1)
    assert is_of_whole_tenant(registry.admit(of("greedy", 2))[0])


def test_whose_a_context_is_follows_from_its_name() -> None:
    for tenant in ("", "acme", "a|b=c", "x" * 500):
        context = context_chain(RequestFeatures(tenant=tenant, route="chat"))[0]
        wide = of_whole_tenant(context)
        assert tenant_of(wide) == tenant_of(context) == context.split("|")[0][2:]
        assert parent_of(wide) == parent_of(context)
        assert is_of_whole_tenant(wide)
        assert not is_of_whole_tenant(context)
    assert tenant_of(GLOBAL) == tenant_of("r=chat|c=0") == tenant_of(SHADOW) == ""
