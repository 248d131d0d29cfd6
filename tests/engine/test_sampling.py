"""Parameters that make no sense are refused by name."""

import math

import pytest

from engine.errors import RequestError
from engine.sampling import Sampling


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("temperature", -0.1, "0 to 100"),
        ("temperature", 101.0, "0 to 100"),
        ("temperature", math.nan, "0 to 100"),
        ("temperature", math.inf, "0 to 100"),
        ("top_k", -1, "0 to 2147483647"),
        ("top_k", 1.5, "whole number"),
        ("top_p", 1.01, "0 to 1"),
        ("top_p", -0.01, "0 to 1"),
        ("min_p", 2, "0 to 1"),
        ("seed", 2**63, "0 to 9223372036854775807"),
        ("seed", 0.5, "whole number"),
        ("penalty_repeat", 0, "0.01 to 100"),
        ("penalty_freq", 100.5, "-100 to 100"),
        ("penalty_present", -101, "-100 to 100"),
        ("penalty_last_n", -1, "0 to 2147483647"),
        ("top_p", "0.5", "number"),
        ("top_k", True, "whole number"),
    ],
)
def test_a_bad_value_is_named(field: str, value: object, limit: str) -> None:
    with pytest.raises(RequestError) as caught:
        Sampling(**{field: value})
    assert field in caught.value.message
    assert repr(value) in caught.value.message
    assert limit in caught.value.message


def test_the_defaults_are_greedy_and_without_penalties() -> None:
    assert Sampling().greedy
    assert not Sampling().penalises
    assert not Sampling(penalty_repeat=2.0, penalty_last_n=0).penalises
    assert Sampling(penalty_freq=0.1).penalises


@pytest.mark.parametrize("bias", [100.5, -101.0, math.inf, math.nan])
def test_a_bias_has_limits(bias: float) -> None:
    with pytest.raises(RequestError, match=r"logit_bias of token 7 is .*-100 to 100"):
        Sampling(logit_bias=((1, 2.0), (7, bias)))
