"""What was asked (`RunConfig`) and what the engine runs (`EngineConfig`).

`engine/resolve.py` turns the first into the second. Neither needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

KvFormat = Literal["int8", "fp16", "f32"]
Activations = Literal["int8", "float"]
KV_FORMATS: tuple[KvFormat, ...] = get_args(KvFormat)
NAMED_KV_FORMATS = (*KV_FORMATS, "k8v4", "q4_0")
"""Those of other versions, too: they have sizes, and may be asked for."""
MtpHnorm = Literal["stream", "pooled"]
MTP_HNORMS: tuple[MtpHnorm, ...] = get_args(MtpHnorm)
ACTIVATIONS: tuple[Activations, ...] = get_args(Activations)
BatchMtp = Literal["measured", "on", "off"]
TablePlace = Literal["vram", "ram"]
TABLE_PLACES: tuple[TablePlace, ...] = get_args(TablePlace)

Value = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What was asked by flags and the config file; `None` means: not said."""

    model: Path | None = None
    synthetic: str | None = None
    mtp: Path | None = None
    mtp_hnorm: str | None = None
    device: str | None = None
    slots: int | None = None
    max_context: int | None = None
    kv: str | None = None
    activations: str | None = None
    draft_vocab: str | None = None
    """The name of a vocabulary, or a file of token ids."""
    spec: int | None = None
    spec_min_p: float | None = None
    batch_mtp: str | None = None
    prefill: int | None = None
    window_rows: int | None = None
    prompt_cache: int | None = None
    prompt_cache_every: int | None = None
    prompt_cache_root: int | None = None
    conversation_cache_mib: int | None = None
    conversation_cache_slots: int | None = None
    conversation_cache_min_free_mib: int | None = None
    vram_limit_mib: int | None = None
    vram_reserve_mib: int | None = None
    expert_cache: str | None = None
    """`auto`, or MiB."""
    table_place: str | None = None
    adapt_every: int | None = None
    adapt_swaps: int | None = None
    adapt_decay: float | None = None
    unused: tuple[tuple[str, str], ...] = ()
    """Known engine flags that this version has no use for, with their values as given."""

    def over(self, lower: RunConfig) -> RunConfig:
        """This configuration, with what it does not say taken from `lower`."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "unused"}
        said = {name: value for name, value in said.items() if value is not None}
        own = {name for name, _ in self.unused}
        kept = tuple(pair for pair in lower.unused if pair[0] not in own)
        return replace(lower, **said, unused=kept + self.unused)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardConfig:
    """What an engine on a card does with the card's memory."""

    identity: str
    """How CUDA finds the card, whatever else is there: its uuid, or its number."""
    vram_limit_mib: int
    """What the engine may take of it, everything counted."""
    expert_cache_bytes: int
    """For routed experts, as they lie in the card's memory; the others lie in the machine's."""
    resident_experts: int
    """How many that are in each layer."""
    keeps_all_experts: bool
    """Whether that is all of them."""
    table_place: TablePlace
    """Where the n-gram table lies: in the card's memory or in the machine's."""
    adapt_every: int
    """Windows between two rounds that bring experts into the card's memory; 0: none."""
    adapt_swaps: int
    """Most experts of a layer in such a round."""
    adapt_decay: float
    """What is left of an expert's count after a round."""
    checkpoints: int
    """How many lie in the card's memory; the others lie in the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Every setting of a running engine, concrete. `docs/cli.md` gives the flags' meaning."""

    model: Path
    """The file; with `synthetic` only a name."""
    synthetic: str | None
    """A model of random weights in place of a file, as `engine/synthetic.py` names it."""
    mtp: Path | None
    """A second GGUF with the draft layer; `None` when it lies in `model` or nowhere."""
    mtp_hnorm: MtpHnorm
    """Decides how many drafts are accepted, never a token."""
    draft_vocab: str | None
    """Which tokens may be drafted: a name or a file (`engine/draft_vocabulary.py`); `None`: all."""
    device: str
    slots: int
    max_context: int
    kv: KvFormat
    activations: Activations
    spec: int
    """Most rows of one slot in a window: its own token and `spec - 1` drafts. 1: no drafts."""
    spec_min_p: float
    batch_mtp: BatchMtp
    """Whether several slots that write draft: measured is as far as measurements say it pays."""
    prefill: int
    """Most prompt rows in one window."""
    window_rows: int
    """Most decode rows (tokens and drafts of all slots) in one window; at least `slots`."""
    prompt_cache: int
    """Checkpoints of the recurrent state kept for each slot; 0: none."""
    prompt_cache_every: int
    """Tokens between periodic checkpoints inside a prompt; 0: only at its turns."""
    prompt_cache_root: int
    """Fewest tokens before a prompt's second turn for a checkpoint there that stays; 0: none."""
    conversation_cache_mib: int
    """Of the machine's memory, for conversations that lost their slot; 0: they are forgotten."""
    conversation_cache_slots: int
    """Most conversations there; 0: any number."""
    conversation_cache_min_free_mib: int
    """Of the machine's memory, what parking leaves free."""
    card: CardConfig | None = None
    """`None` on the processor."""

    @property
    def drafts(self) -> int:
        """Most draft tokens a slot may put in one window."""
        return max(0, self.spec - 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """How one setting got its value: `asked` is what was said (`None`: nothing)."""

    setting: str
    asked: Value
    value: Value
    reason: str

    @property
    def changed(self) -> bool:
        """True when the user asked for something and gets something else."""
        return self.asked is not None and str(self.asked) != str(self.value)
