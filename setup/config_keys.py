"""The keys of `strata-<model>.json`: one table that checks and documents them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. Setup writes the keys it owns anew on every run; the others stay as they are."""

    name: str
    allowed: str
    check: Check
    meaning: str
    owned: bool = False


def _whole(low: int, high: int | None = None) -> Check:
    def check(value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and value >= low and (high is None or value <= high)

    return check


def _number(low: float) -> Check:
    return lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= low


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _env(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(float("-inf"))(v) for v in value.values())


def _gpu(value: Any) -> bool:
    indices = value if isinstance(value, list) else [value]
    return bool(indices) and all(map(_whole(0), indices)) and len(set(indices)) == len(indices)


def _split(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_whole(0), value))
    return value is None or isinstance(value, str) or _whole(0)(value)


def _one_of(*names: str) -> Check:
    return lambda value: value in names


_TRUE = "true or false"
_LIST = "a list of texts"
_SECONDS = "a number of seconds from 0"

CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("model", "the path of a GGUF file", _text, "The model file.", owned=True),
    ConfigKey("model_name", "a text", _text, "The name that clients see.", owned=True),
    ConfigKey(
        "backend", "cpu, cuda or hip", _one_of("cpu", "cuda", "hip"), "What computes.", owned=True
    ),
    ConfigKey("gpu", "a GPU number or a list of them", _gpu, "Which cards.", owned=True),
    ConfigKey(
        "layer_split",
        'auto, or the first layer of each later GPU, such as "16,32"',
        _split,
        "How layers are spread over cards.",
        owned=True,
    ),
    ConfigKey("args", _LIST, _texts, "Engine flags (below).", owned=True),
    ConfigKey("host", "an address", _text, "Where the server listens.", owned=True),
    ConfigKey("port", "a whole number from 0 to 65535", _whole(0, 65535), "Its port.", owned=True),
    ConfigKey("api_key", "a text that is not empty", _text, "What clients must send.", owned=True),
    ConfigKey("log", "the path of a file", _text, "Where the engine's log goes.", owned=True),
    ConfigKey(
        "draft_vocab",
        "cjk, cyrillic, fr or en",
        _one_of("cjk", "cyrillic", "fr", "en"),
        "Which tokens may be drafted.",
        owned=True,
    ),
    ConfigKey("parallel", "a whole number from 0", _whole(0), "Conversations decoded together."),
    ConfigKey("env", "texts by name", _env, "Environment of the engine: the STRATA_* switches."),
    ConfigKey("sampling", "numbers by name", _numbers, "What a request gets by default."),
    ConfigKey("aliases", _LIST, _texts, "Further names of the model."),
    ConfigKey("four_card_profile", _TRUE, _flag, "Use the profile of four equal cards."),
    ConfigKey("fit_max_tokens", _TRUE, _flag, "Clamp answers that do not fit the context."),
    ConfigKey("engine_silence_s", _SECONDS, _number(0), "Quiet time after which it restarts."),
    ConfigKey("allowed_hosts", _LIST, _texts, "Host names that are answered without a key."),
    ConfigKey("cors_origins", _LIST, _texts, "Web origins that may read answers."),
    ConfigKey("trusted_origins", _LIST, _texts, "Web origins that may change things."),
    ConfigKey("gpus_asked", _TRUE, _flag, "The question about several cards was answered."),
    ConfigKey("gpu_order", "as_given or auto", _one_of("as_given", "auto"), "Order of the cards."),
    ConfigKey("split_skip_if_fits", _TRUE, _flag, "Use one card when it holds everything."),
    ConfigKey("remote_expert_opt", _TRUE, _flag, "Experts on a second card."),
    ConfigKey("expert_profile_save", "the path of a file", _text, "Where routing is learned to."),
    ConfigKey("open_browser", _TRUE, _flag, "Open the page after the start."),
    ConfigKey("effort_position", "start or end", _one_of("start", "end"), "Where effort stands."),
    ConfigKey(
        "reasoning_budget_tokens", "a whole number from 0", _whole(0), "Most tokens of thinking."
    ),
    ConfigKey(
        "anthropic_thinking",
        "model or on_request",
        _one_of("model", "on_request"),
        "When /v1/messages shows thinking.",
    ),
    ConfigKey("idle_unload_s", _SECONDS, _number(0), "Idle time after which the model goes."),
    ConfigKey("lazy_load", _TRUE, _flag, "Load the model at the first request."),
    ConfigKey("api_monitor", _TRUE, _flag, "Keep the last requests for the page."),
    ConfigKey("open_history", _TRUE, _flag, "Show earlier chats on the page."),
    ConfigKey("min_free_vram_mib", "a whole number from 0", _whole(0), "VRAM to leave free."),
    ConfigKey("vram_elastic", _TRUE, _flag, "Give VRAM back while idle."),
    ConfigKey("repeat_stop_tokens", "a whole number from 0", _whole(0), "Stop at repetitions."),
    ConfigKey("chat_archive_path", "the path of a file", _text, "Where chats are kept."),
    ConfigKey("mcp_servers", "an object", lambda v: isinstance(v, dict), "Tool servers."),
    ConfigKey("vision", "an object", lambda v: isinstance(v, dict), "The image encoder."),
)

OWNED = frozenset(key.name for key in CONFIG_KEYS if key.owned)
