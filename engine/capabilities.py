"""What the engine of this version can do: one table for the flags, `resolve` and setup.

Setup writes only what the table holds, and tells what its rules would have chosen otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """Something an engine can do or not. `flags` belong to it: (name, whether it takes a value)."""

    name: str
    what: str
    """Completes the sentence "this version cannot ..."."""
    flags: tuple[tuple[str, bool], ...] = ()


FEATURES: tuple[Feature, ...] = (
    Feature("cuda", "compute on NVIDIA cards"),
    Feature("hip", "compute on AMD cards"),
    Feature(
        "layer_split",
        "spread layers over cards",
        (
            ("--layer-split", True),
            ("--split-skip-if-fits", False),
            ("--trim-stage-weights", False),
            ("--peer-device", True),
        ),
    ),
    Feature("batch_groups", "send slots over the cards in groups", (("--batch-groups", True),)),
    Feature("kv_streaming", "keep keys and values outside the card", (("--kv-resident", True),)),
    Feature("kv_k8v4", "store values in 4 bits"),
    Feature("kv_q4_0", "store keys and values in 4 bits"),
    Feature(
        "low_ram",
        "leave experts on the card or in the file",
        (("--resident-experts", False), ("--mmap-experts", False)),
    ),
    Feature("resident_budget", "limit experts in memory", (("--resident-budget-gib", True),)),
    Feature(
        "expert_cache",
        "keep some experts on the card and the rest in memory",
        (
            ("--expert-cache", True),
            ("--adapt-decay", True),
            ("--adapt-every", True),
            ("--adapt-swaps", True),
        ),
    ),
    Feature(
        "expert_profile",
        "learn from earlier runs which experts belong on the card",
        (("--expert-profile", True), ("--expert-profile-save", True)),
    ),
    Feature(
        "expert_tuning",
        "limit what the bus carries for experts",
        (("--pcie-frac", True), ("--adapt-async", True), ("--adapt-min-gain", True)),
    ),
    Feature("vram_reserve", "leave room on a card", (("--vram-reserve-mib", True),)),
    Feature("table_place", "choose where the n-gram table lies", (("--ple-io", True),)),
    Feature(
        "rope_scaling",
        "go beyond the context that a model was trained for",
        (("--rope-scaling", True), ("--rope-scale", True)),
    ),
    Feature("draft_vocab", "draft from a part of the tokens", (("--mtp-draft-vocab", True),)),
    Feature("vision", "read images", (("--vision", False),)),
    Feature(
        "workers",
        "compute with several threads",
        (("--pool-workers", True), ("--threads", True)),
    ),
    Feature(
        "conversation_cache",
        "park conversations outside their slots",
        (("--conversation-cache-mib", True), ("--prompt-cache-root", True)),
    ),
)
"""Every feature that setup's rules or a documented flag ask about."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that one version of the engine has, by name."""

    names: frozenset[str]

    def has(self, name: str) -> bool:
        """Whether the feature is there. The name must be one of `FEATURES`."""
        assert name in _BY_NAME, name
        return name in self.names

    @property
    def follow_the_rules(self) -> bool:
        """Whether the engine does all that setup's rules of memory count with: else it is the
        engine's own plan that says what fits."""
        return self.names.issuperset(_COUNTED_WITH)

    def missing(self, name: str) -> str:
        """Why something is left out: "this version cannot spread layers over cards"."""
        return f"this version cannot {_BY_NAME[name].what}"


_COUNTED_WITH = ("expert_cache", "kv_streaming", "layer_split", "low_ram")
_BY_NAME = {feature.name: feature for feature in FEATURES}

THIS_VERSION = Capabilities(
    frozenset(
        {
            "conversation_cache",
            "cuda",
            "draft_vocab",
            "expert_cache",
            "table_place",
            "vram_reserve",
        }
    )
)
"""One NVIDIA card, with experts on it and beside it, or the CPU with the whole model in memory."""

EVERYTHING = Capabilities(frozenset(_BY_NAME))
"""An engine that can do all that the rules know, for telling what they would choose."""


def feature_of_flag(flag: str) -> Feature | None:
    """The feature that an engine flag belongs to; `None` for flags that every version acts on."""
    return next((f for f in FEATURES if any(name == flag for name, _ in f.flags)), None)
