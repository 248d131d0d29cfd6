"""The keys of `strata-<model>.json`: one table that checks and documents them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.capabilities import THIS_VERSION, Capabilities
from setup.config import key_checks as is_
from setup.config.key_checks import Check, number, one_of, whole

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
"""Where the server listens when nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. Setup writes the keys it owns anew on every run; the others stay as they are."""

    name: str
    allowed: str
    check: Check
    meaning: str
    owned: bool = False
    acts: bool = True
    """False: known from other versions and accepted, without effect in this one."""
    needs: tuple[str, ...] = ()
    """Features (`engine/capabilities.py`); where the engine has none of them, it has no effect."""
    off: Any = None
    """The value that asks for nothing, or for what happens without the key."""
    secret: bool = False
    """Never printed."""

    def has_effect(self, capabilities: Capabilities = THIS_VERSION) -> bool:
        """Whether this version acts on the key."""
        return any(map(capabilities.has, self.needs)) if self.needs else self.acts

    def note(self, value: Any, capabilities: Capabilities = THIS_VERSION) -> str | None:
        """Says that the value has no effect, where that is so."""
        if value == self.off or self.has_effect(capabilities):
            return None
        return f"config key {self.name} has no effect in this version"


_TRUE = "true or false"
_LIST = "a list of texts"
_TEXT = "a text that is not empty"
_FILE = "the path of a file"
_SECONDS = "a number of seconds from 0"
_WHOLE = "a whole number from 0"

_OWNED: tuple[ConfigKey, ...] = (
    ConfigKey("model", "the path of a GGUF file", is_.path, "The model file.", owned=True),
    ConfigKey("model_name", _TEXT, is_.text, "The name that clients see.", owned=True),
    ConfigKey(
        "backend", "cpu, cuda or hip", one_of("cpu", "cuda", "hip"), "What computes.", owned=True
    ),
    ConfigKey(
        "gpu",
        "a GPU number or a list of different ones",
        is_.gpu,
        "Which cards; the first has layer 0.",
        owned=True,
        needs=("cuda", "hip"),
    ),
    ConfigKey(
        "layer_split",
        'auto, or the first layer of each later GPU, such as "16,32"',
        is_.split,
        "How layers are spread over cards.",
        owned=True,
        needs=("layer_split",),
    ),
    ConfigKey("args", _LIST, is_.arguments, "Engine flags (below).", owned=True),
)
"""The keys that name the model and the engine's flags: the whole of what setup decides anew."""

_ACTING: tuple[ConfigKey, ...] = (
    ConfigKey("host", "an address", is_.text, "Where the server listens."),
    ConfigKey("port", "a whole number from 0 to 65535", whole(0, 65535), "Its port; 0: any free."),
    ConfigKey("api_key", _TEXT, is_.api_key, "What clients must send.", secret=True),
    ConfigKey("log", _FILE, is_.path, "Where the engine's log goes."),
    ConfigKey("parallel", _WHOLE, whole(0), "Conversations decoded together."),
    ConfigKey(
        "env", "texts by name", is_.environment, "Environment of the engine: the STRATA_* switches."
    ),
    ConfigKey("sampling", "numbers by name", is_.mapping, "What a request gets by default."),
    ConfigKey("aliases", _LIST, is_.texts, "Further names of the model."),
    ConfigKey("four_card_profile", _TRUE, is_.flag, "false: not the profile of four equal cards."),
    ConfigKey("fit_max_tokens", _TRUE, is_.flag, "Clamp answers that do not fit the context."),
    ConfigKey("reasoning_budget_tokens", _WHOLE, whole(0), "Most tokens of thinking; 0: any."),
    ConfigKey(
        "anthropic_thinking",
        "model or on_request",
        one_of("model", "on_request"),
        "When /v1/messages thinks: as the model does by itself, or only where it is asked.",
    ),
    ConfigKey("engine_silence_s", _SECONDS, number(0), "Quiet time after which it restarts."),
    ConfigKey("allowed_hosts", _LIST, is_.texts, "Host names that are answered without a key."),
    ConfigKey("cors_origins", _LIST, is_.texts, "Web origins that may read answers."),
    ConfigKey("trusted_origins", _LIST, is_.texts, "Web origins that may change things."),
    ConfigKey("gpus_asked", _TRUE, is_.flag, "The question about several cards was answered."),
)


def _later(
    name: str,
    allowed: str,
    check: Check,
    meaning: str,
    *,
    off: Any = None,
    needs: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(name, allowed, check, meaning, acts=False, off=off, needs=needs)


_CARDS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "draft_vocab",
        "cjk, cyrillic, fr or en",
        one_of("cjk", "cyrillic", "fr", "en"),
        "Which tokens may be drafted; else all.",
    ),
    _later("drafter", "mtp, dflash or none", one_of("mtp", "dflash", "none"), "What drafts."),
    _later("gpu_order", "as_given or auto", one_of("as_given", "auto"), "Order of the cards."),
    _later("split_skip_if_fits", _TRUE, is_.flag, "One card when it holds everything.", off=False),
    _later("remote_expert_opt", _TRUE, is_.flag, "Experts on a second card.", off=False),
    _later("expert_profile_save", _FILE, is_.path, "Where routing is learned to."),
    _later("expert_profile_save_every", "a number from 0", number(0), "How often it is saved."),
    _later("vram_reserve_mib", _WHOLE, whole(0), "VRAM left to others.", needs=("vram_reserve",)),
    _later("min_free_vram_mib", _WHOLE, whole(0), "VRAM that must be free at the start.", off=0),
    _later("vram_elastic", _TRUE, is_.flag, "Give VRAM back while idle.", off=False),
    _later("vram_segment_mib", _WHOLE, whole(0), "Size of the pieces of VRAM."),
    _later("hip_ordinal", _WHOLE, whole(0), "The card's number in HIP."),
    _later("cuda", "12 or 13", one_of(12, 13), "The CUDA release of the engine."),
    _later("vision", "an object", is_.mapping, "The image encoder.", off={}, needs=("vision",)),
)
_SERVER: tuple[ConfigKey, ...] = (
    _later("open_browser", _TRUE, is_.flag, "Open the page after the start.", off=False),
    _later("open_history", _TRUE, is_.flag, "Show earlier chats on the page.", off=False),
    _later("api_monitor", _TRUE, is_.flag, "Keep the last requests for the page.", off=False),
    _later("lazy_load", _TRUE, is_.flag, "Load the model at the first request.", off=False),
    _later("idle_unload_s", _SECONDS, number(0), "Idle time after which the model goes.", off=0),
    _later("before_load", "a command as a text or a list", is_.text_or_texts, "Run before a load."),
    _later("effort_position", "start or end", one_of("start", "end"), "Where effort stands."),
    _later("repeat_stop_tokens", _WHOLE, whole(0), "Stop at repetitions.", off=0),
    _later("chat_archive_path", _FILE, is_.path, "Where chats are kept."),
    ConfigKey(
        "mcp_servers", "an object", is_.mapping, "Tool servers.", acts=False, off={}, secret=True
    ),
    _later("mcp", "an object, true or false", is_.mapping_or_flag, "Tool servers.", off=False),
)
# Where the original's config names an executable and its libraries, `model` names the GGUF here.
_ORIGINAL: tuple[ConfigKey, ...] = (
    _later("exe", _FILE, is_.path, "The original's engine: the engine is part of Strata here."),
    _later("cwd", "the path of a folder", is_.path, "The original's folder."),
    _later("tokenizer", _FILE, is_.path, "The original's tokenizer: it is in the GGUF."),
    _later("lib_dirs", _LIST, is_.texts, "The original's libraries.", off=[]),
)

CONFIG_KEYS: tuple[ConfigKey, ...] = (*_OWNED, *_ACTING, *_CARDS, *_SERVER, *_ORIGINAL)
KEYS_BY_NAME = {key.name: key for key in CONFIG_KEYS}
OWNED = frozenset(key.name for key in CONFIG_KEYS if key.owned)
