"""Models of random weights: the geometry and the types of a published file, without the file.

A model behaves as an open GGUF whose tensors are made when they are asked for: the same bytes for
the same seed, on the CPU and on a GPU. Weights have the size that keeps activations near 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.errors import ConfigError
from engine.gguf.header import Header, TensorInfo
from engine.gguf.random_blocks import (
    Recipe,
    fill,
    fill_on_device,
    float_recipe,
    quantised_recipe,
    stream_key,
)
from engine.gguf.reader import GGUF
from engine.gguf.vocabulary import BYTE_LETTERS, TokenType
from engine.gguf.writer import write_gguf
from engine.models.geometry import Geometry
from engine.models.published import published_model
from engine.synthetic_mixes import FAMILIES

if TYPE_CHECKING:
    import torch

Bytes = npt.NDArray[np.uint8]

_EXAMPLE = "for example qwen3.8-flash-next:iq3_s or qwen3.6-35b-a3b:ud-iq4_xs,layers=4,seed=1"
_FLOATS = ("F32", "F16", "BF16")
_ROUTER = ".ffn_gate_inp.weight"
# An expert whose router row were still larger would be chosen by every second token or more.
_MOST_POPULAR = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSpec:
    """Which model to make. `layers`, `experts`, `vocabulary` 0: as published.

    `zipf` s: experts are chosen about as often as rank ** -s says, 0: all alike. `small`: widths of
    a few hundred, for tests. `drafts`: with the draft layer.
    """

    family: str
    mix: str
    layers: int = 0
    experts: int = 0
    vocabulary: int = 0
    seed: int = 0
    zipf: float = 0.0
    small: bool = False
    drafts: bool = True

    @classmethod
    def parse(cls, text: str) -> SyntheticSpec:
        """`FAMILY:MIX[,option[=value]...]`. Raises ConfigError naming what is unknown."""
        name, *options = text.split(",")
        family, _, mix = name.partition(":")
        values: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition("=")
            values[key] = _option(key, value)
        _check(family, mix)
        return cls(family=family, mix=mix, **values)

    @property
    def name(self) -> str:
        """`qwen3.8-flash-next:iq3_s:synthetic`, as records of measurements name a model."""
        return f"{self.family}:{self.mix}:synthetic"

    @property
    def geometry(self) -> Geometry:
        """The widths of the model."""
        family = FAMILIES[self.family]
        base = family.small if self.small else family.geometry
        layers, experts = self.layers or base.layers, self.experts or base.experts
        return replace(
            base,
            layers=layers,
            interval=min(base.interval, layers),
            experts=experts,
            used=min(base.used, max(1, experts // 2)),
            vocabulary=self.vocabulary or base.vocabulary,
            eos=min(base.eos, (self.vocabulary or base.vocabulary) - 4),
            drafts=base.drafts * self.drafts,
        )


def _option(key: str, value: str) -> int | float | bool:
    least = {"layers": 2, "experts": 2, "vocabulary": 512, "seed": 0}
    try:
        if key in ("small", "drafts"):
            return {"": True, "1": True, "0": False}[value]
        number = float(value) if key == "zipf" else int(value)
        if number >= least.get(key, 0) and key in (*least, "zipf"):
            return number
    except (ValueError, KeyError):
        pass
    raise ConfigError(
        f"--synthetic: {key}={value!r} is not an option",
        hint="Options are layers (2 or more), experts (2), vocabulary (512), seed, zipf, "
        "small and drafts=0.",
    )


def _check(family: str, mix: str) -> None:
    if family not in FAMILIES:
        raise ConfigError(
            f"--synthetic: {family!r} is not a family", hint=f"{' or '.join(FAMILIES)}, {_EXAMPLE}"
        )
    mixes = FAMILIES[family].mixes
    if mix not in mixes:
        raise ConfigError(
            f"--synthetic: {mix!r} is not a mix of {family}", hint=f"Mixes: {', '.join(mixes)}."
        )


class SyntheticGGUF(GGUF):
    """A model of random weights, as if it were an open file."""

    def __init__(self, spec: SyntheticSpec) -> None:
        geometry, family = spec.geometry, FAMILIES[spec.family]
        path = Path(spec.name.replace(":", "-"))
        title = f"{family.title} {spec.mix} synthetic"
        header = published_model(geometry, family.mixes[spec.mix], title, path)
        metadata = {**header.metadata, **_tokenizer(geometry)}
        super().__init__(path, (Header(path, 3, metadata, header.tensors),), ())
        self.spec = spec
        self._used = geometry.used

    def raw(self, name: str) -> Bytes:
        """The bytes of tensor `name`, made anew: uint8 [*shape[:-1], row_bytes].

        Raises ModelFileError for a name that the model does not have.
        """
        info = self.tensor(name)
        out = np.empty(_raw_shape(info), np.uint8)
        fill(_recipe(info, self.spec.seed), out)
        if self._is_popular(name):
            _make_popular(info, self.spec, self._used, out)
        return out

    def fill(self, name: str, out: torch.Tensor, device: str | torch.device) -> None:
        """Writes the bytes of tensor `name`, made on a device, into `out`, wherever it lies."""
        if self._is_popular(name):
            import torch

            out.copy_(torch.from_numpy(self.raw(name)))
        else:
            fill_on_device(_recipe(self.tensor(name), self.spec.seed), out, device)

    def raw_on(self, name: str, device: str | torch.device) -> torch.Tensor:
        """The same bytes on a device, made there."""
        import torch

        out = torch.empty(_raw_shape(self.tensor(name)), dtype=torch.uint8, device=device)
        self.fill(name, out, device)
        return out

    def _is_popular(self, name: str) -> bool:
        return self.spec.zipf > 0 and name.endswith(_ROUTER)


def open_synthetic(text: str) -> SyntheticGGUF:
    """The model that `--synthetic` names. Raises ConfigError for one that cannot be made."""
    return SyntheticGGUF(SyntheticSpec.parse(text))


def write_synthetic(gguf: SyntheticGGUF, path: Path) -> None:
    """Writes the model as one GGUF file, for another program to read; a tensor at a time."""
    write_gguf(path, gguf.metadata, _Lazy(gguf))


class _Tensor:
    """Bytes that numpy asks for when it writes them."""

    def __init__(self, gguf: SyntheticGGUF, info: TensorInfo) -> None:
        self._gguf, self._name, self.nbytes = gguf, info.name, info.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Bytes:
        return self._gguf.raw(self._name)


class _Lazy(Mapping[str, Any]):
    """The tensors of a model as the writer takes them."""

    def __init__(self, gguf: SyntheticGGUF) -> None:
        self._gguf = gguf

    def __getitem__(self, name: str) -> Any:
        info = self._gguf.tensors[name]
        return info.type, info.shape, _Tensor(self._gguf, info)

    def __iter__(self) -> Iterator[str]:
        return iter(self._gguf.tensors)

    def __len__(self) -> int:
        return len(self._gguf.tensors)


def _raw_shape(info: TensorInfo) -> tuple[int, ...]:
    return (*info.shape[:-1], info.type.row_bytes(info.shape[-1]))


def _recipe(info: TensorInfo, seed: int) -> Recipe:
    """Norms lie in 1..2, A in -0.5..-0.25, biases around 0.5; a matrix keeps its input's size.

    Filters are small: the silu after one then has hardly a mean. With a mean all tokens would share
    a direction, and a few experts would be chosen by all of them.
    """
    key = stream_key(seed, info.name)
    field = info.name.removesuffix(".weight").rsplit(".", 1)[-1]
    if "norm" in field:
        return float_recipe(info.type, key, 1.53, "plus")
    if field == "ssm_a":
        return float_recipe(info.type, key, 0.38, "minus")
    if field == "bias":
        return float_recipe(info.type, key, 0.5)
    if "conv1d" in field:
        return float_recipe(info.type, key, 0.06)
    rms = 1.0 if field.endswith("token_embd") else 1 / sqrt(info.shape[-1])
    if info.type.name in _FLOATS:
        return float_recipe(info.type, key, rms)
    return quantised_recipe(info.type, key, rms)


def _make_popular(info: TensorInfo, spec: SyntheticSpec, used: int, out: Bytes) -> None:
    """Scales the router's rows, so that expert e's logit is the largest as often as its rank says.

    A logit is near a normal number; the row's size decides how often it passes the threshold.
    """
    count = info.shape[0]
    wanted = np.arange(1, count + 1, dtype=np.float64) ** -spec.zipf
    wanted *= used / wanted.sum()
    normal = NormalDist()
    middle = normal.inv_cdf(1 - used / count)
    sizes = [middle / normal.inv_cdf(1 - min(p, _MOST_POPULAR)) for p in wanted.tolist()]
    order = np.random.Philox(stream_key(spec.seed, f"{info.name}/order")).random_raw(count)
    factors = np.empty(count, np.float32)
    factors[np.argsort(order, kind="stable")] = sizes
    from engine.gguf.dequantize import dequantize

    rows = dequantize(out, info.type) * factors[:, None]
    keep = info.type.block_bytes
    out[:] = rows.view(np.uint8).reshape(count, -1, 4)[:, :, 4 - keep :].reshape(out.shape)


def _tokenizer(geometry: Geometry) -> dict[str, Any]:
    """A vocabulary of the right size: the bytes, pairs of letters, fillers, ChatML's tokens."""
    count, eos = geometry.vocabulary, geometry.eos
    tokens = [*BYTE_LETTERS]
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [a + b for a in letters for b in letters][: eos - len(tokens)]
    tokens += pairs
    tokens += [f"x{index:06}" for index in range(len(tokens), count)]
    tokens[eos : eos + 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    types = np.full(count, TokenType.NORMAL, np.int32)
    types[eos : eos + 3] = TokenType.CONTROL
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [f"{pair[0]} {pair[1]}" for pair in pairs],
        "tokenizer.ggml.eos_token_id": eos + 2,
        "tokenizer.chat_template": _CHAT_TEMPLATE,
    }


_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
