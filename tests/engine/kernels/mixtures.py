"""The same random experts for the reference and for kernels, and some of them in host memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.kernels.expert_store import ExpertStore, Policy, Staging
from engine.kernels.inputs import as_input
from engine.kernels.matrix import Matrix
from engine.models.weights import Experts
from engine.reference.experts import mixture_into as wanted_into
from tests.engine.kernels.packing import tame_pair

COUNT, USED, WIDTH, INNER, SHARED = 9, 2, 64, 32, 64
Kinds = tuple[str, str, str]
INTEGERS: Kinds = ("Q4_0", "Q4_0", "Q8_0")
FLOATS: Kinds = ("F32", "F32", "F32")


@dataclass(frozen=True)
class Both:
    """A mixture for the reference and for kernels."""

    wanted: Experts
    packed: Experts

    def expected(
        self, residual: torch.Tensor, shares: torch.Tensor | None, x: torch.Tensor
    ) -> torch.Tensor:
        out = residual.clone()
        wanted_into(out, shares, x, self.wanted, USED)
        return out

    def got(
        self, residual: torch.Tensor, shares: torch.Tensor | None, x: torch.Tensor
    ) -> torch.Tensor:
        from engine.kernels.experts import mixture_into

        out = residual.clone()
        mixture_into(out, shares, as_input(x), self.packed, USED)
        return out


def mixture(routed: Kinds = INTEGERS, shared: Kinds = INTEGERS) -> Both:
    """COUNT experts of INNER, and a shared one of SHARED."""
    gate, up, down = routed
    one, two, three = shared
    pairs = {
        "ffn_gate_inp": tame_pair("F32", (COUNT,), WIDTH, 1),
        "ffn_gate_exps": tame_pair(gate, (COUNT, INNER), WIDTH, 2, floats=gate == "F32"),
        "ffn_up_exps": tame_pair(up, (COUNT, INNER), WIDTH, 3, floats=up == "F32"),
        "ffn_down_exps": tame_pair(down, (COUNT, WIDTH), INNER, 4, floats=down == "F32"),
        "ffn_gate_inp_shexp": tame_pair("F32", (1,), WIDTH, 5),
        "ffn_gate_shexp": tame_pair(one, (SHARED,), WIDTH, 6, floats=one == "F32"),
        "ffn_up_shexp": tame_pair(two, (SHARED,), WIDTH, 7, floats=two == "F32"),
        "ffn_down_shexp": tame_pair(three, (WIDTH,), SHARED, 8, floats=three == "F32"),
    }
    return Both(
        Experts(**{name: pair[0] for name, pair in pairs.items()}),
        Experts(**{name: pair[1] for name, pair in pairs.items()}),
    )


def encoded(packed: Experts) -> Callable[[int, int], tuple[Matrix, Matrix, Matrix]]:
    """What a loader gives: runs of the experts."""

    def encode(first: int, last: int) -> tuple[Any, ...]:
        return tuple(
            replace(m, record=m.record[first:last], addresses=m.addresses[first:last])
            for m in (packed.ffn_gate_exps, packed.ffn_up_exps, packed.ffn_down_exps)
        )

    return encode


def stored(both: Both, resident: int, room: int, policy: Policy) -> tuple[Both, ExpertStore]:
    """The mixture with `resident` experts on the device and `room` staging slots."""
    staging = Staging(room, torch.device("cpu"))
    store = ExpertStore(COUNT, encoded(both.packed), resident, staging, policy)
    packed = replace(
        both.packed, ffn_gate_exps=store.gate, ffn_up_exps=store.up, ffn_down_exps=store.down
    )
    return replace(both, packed=packed), store


def residuals(rows: int, streams: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A residual and what its streams get; one stream: no axis for it."""
    random = torch.Generator().manual_seed(rows)
    if streams == 1:
        return torch.randn(rows, WIDTH, generator=random), None
    residual = torch.randn(rows, streams, WIDTH, generator=random)
    return residual, torch.rand(rows, streams, generator=random)
