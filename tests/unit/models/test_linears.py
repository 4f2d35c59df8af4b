from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from models.half_linear import HalfLinear, is_half_available, lossless_exponent
from models.linears import pack_linears, packed_linear, plain_linear
from models.packed_linear import PackedLinear, is_packing_available

needs_half = pytest.mark.skipif(not is_half_available(), reason="this torch has no FBGEMM")
needs_packing = pytest.mark.skipif(not is_packing_available(), reason="this torch cannot pack")

Rounding = Callable[[Tensor], Tensor]
ROUNDINGS: dict[str, Rounding] = {
    "bfloat16": lambda weight: weight.bfloat16().float(),
    "float16": lambda weight: weight.half().float(),
}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", sorted(ROUNDINGS))
@pytest.mark.parametrize("size", [1e-4, 0.05, 1.0, 3000.0])
def test_weights_of_16_bits_lose_nothing(name: str, size: float) -> None:
    weight = ROUNDINGS[name](random(64, 64) * size)
    exponent = lossless_exponent(weight)
    assert exponent is not None
    stored = (weight * 2.0**exponent).half().double() * 2.0**-exponent
    lost = (stored - weight.double()).abs().max()
    assert float(lost) <= 2.0**-39 * float(weight.abs().max())


def test_weights_of_32_bits_are_not_halved() -> None:
    assert lossless_exponent(random(16, 16)) is None
    assert lossless_exponent(torch.zeros(4, 4)) == 0


@needs_half
@pytest.mark.parametrize(("out", "width"), [(96, 64), (100, 36), (48, 700)])
def test_a_half_linear_computes_in_float32(out: int, width: int) -> None:
    weight = (random(out, width) * 0.3).bfloat16().float()
    bias, rows = random(out, seed=1), random(40, width, seed=2)
    exponent = lossless_exponent(weight)
    assert exponent is not None
    exact = rows.double() @ weight.double().T + bias.double()
    ours = (HalfLinear(weight, bias, exponent)(rows) - exact).abs().max()
    plain = (plain_linear(weight, bias)(rows) - exact).abs().max()
    assert float(ours) < 8 * float(plain)


def layers() -> list[nn.Module]:
    weight, bias = (random(96, 64) * 0.3).half().float(), random(96, seed=1)
    found: list[nn.Module] = []
    if is_half_available():
        found.append(HalfLinear(weight, bias, lossless_exponent(weight) or 0))
    if is_packing_available():
        found.append(PackedLinear(weight, bias))
    return found


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_a_row_does_not_depend_on_its_company(layer: nn.Module) -> None:
    rows = random(130, 64, seed=3)
    together = layer(rows)
    for count in (*range(1, 40), 64, 121, 127):
        assert torch.equal(layer(rows[:count].contiguous()), together[:count]), count
        assert torch.equal(layer(rows[count - 1 : count]), together[count - 1 : count]), count
    assert layer(rows[:4].view(2, 2, 64)).shape == (2, 2, 96)


@needs_half
@needs_packing
def test_each_weight_gets_the_layer_that_fits() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8).double())
    first = model[0]
    assert isinstance(first, nn.Linear)
    first.weight.data = first.weight.data.half().float()
    assert pack_linears(model) == 2
    assert [type(layer) for layer in model] == [HalfLinear, PackedLinear, nn.Linear]
    assert not isinstance(packed_linear(random(4, 4).half(), None), nn.Module)
