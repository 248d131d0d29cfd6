"""One flag of the engine: how its text is read, and what it takes in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.draft_vocabulary import OWN_TOKENS
from engine.errors import ConfigError

Kind = Literal[
    "whole",
    "number",
    "choice",
    "path",
    "device",
    "synthetic",
    "prefill",
    "tokens",
    "experts",
    "vocabulary",
    "switch",
]

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def read_tokens(text: str) -> int | None:
    """A number of tokens, such as 24576, 24k or 1M (of 1024 and 1024 * 1024); else `None`."""
    found = re.fullmatch(r"\+?(\d{1,18})\s*([kKmM]?)", text.strip(), re.ASCII)
    return int(found[1]) * _UNITS[found[2].lower()] if found else None


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One flag: `field` is the field of `RunConfig` that it sets."""

    field: str
    names: tuple[str, ...]
    kind: Kind
    meaning: str
    low: float = 0
    high: float = float("inf")
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What the flag takes, in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "path":
            return "the path of a GGUF file"
        if self.kind == "prefill":
            return "auto, auto:N or a whole number from 1"
        if self.kind == "device":
            return "auto, cpu, cuda or cuda:N"
        if self.kind == "synthetic":
            return "FAMILY:MIX, such as qwen3.8-flash-next:iq3_s"
        if self.kind == "experts":
            return "auto or a whole number of MiB"
        if self.kind == "switch":
            return "nothing or =1 (on), =0 (off) or =measured"
        if self.kind == "vocabulary":
            return f"{', '.join(OWN_TOKENS)} or a file of int32 token ids"
        if self.kind == "tokens":
            return f"a number of tokens from {self.low:g}, such as 4096, 24k or 1M"
        noun = "a whole number" if self.kind == "whole" else "a number"
        upper = "" if self.high == float("inf") else f" to {self.high:g}"
        return f"{noun} from {self.low:g}{upper}"

    def read(self, text: str, where: str) -> Any:
        """The value of `text`; `ConfigError` naming `where`, the value and what is allowed."""
        value = self._convert(text.strip())
        if value is None:
            raise ConfigError(f"{where}: {text!r} is not {self.allowed}")
        return value

    def _convert(self, text: str) -> str | int | float | Path | None:
        match self.kind:
            case "path":
                return Path(text) if text else None
            case "device":
                return text if re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", text) else None
            case "synthetic":
                return text if re.fullmatch(r"[\w.-]+:[\w.,=-]+", text, re.ASCII) else None
            case "experts":
                return text if re.fullmatch(r"auto|\d{1,9}", text, re.ASCII) else None
            case "vocabulary":
                return text or None
            case "switch":
                words = {"1": "on", "0": "off"}
                return words.get(text, text if text in ("on", "off", "measured") else None)
            case "choice":
                return text if text in self.choices else None
            case "prefill":
                found = re.fullmatch(r"auto(?::(\d+))?|(\d+)", text)
                number = found and (found[1] or found[2] or "0")
                return int(number) if number and (number != "0" or text == "auto") else None
            case "tokens":
                tokens = read_tokens(text)
                return None if tokens is None else self._in_range(tokens)
            case "whole":
                whole = re.fullmatch(r"[+-]?\d{1,18}", text)
                return self._in_range(int(text)) if whole else None
            case "number":
                try:
                    return self._in_range(float(text))
                except ValueError:
                    return None

    def _in_range(self, value: float) -> float | None:
        return value if self.low <= value <= self.high else None
