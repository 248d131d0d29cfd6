"""The server's settings: flags over the config file over the defaults.

The API key may also stand in `STRATA_API_KEY`, which wins over the file, so that a service need not
write it down.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ConfigError
from engine.flags import engine_args
from engine.server.options import ServerOptions
from engine.server.sampling import SamplingFields
from engine.switches import API_KEY_VARIABLE, admission, card_environment, this_environment
from setup.models.bundled import model_tag
from strata_cli.chosen import Chosen

_SAME_NAME = (
    "fit_max_tokens",
    "anthropic_thinking",
    "reasoning_budget_tokens",
    "engine_silence_s",
    "allowed_hosts",
    "cors_origins",
    "trusted_origins",
    "aliases",
    "model_name",
    "host",
    "port",
)


def server_options(
    chosen: Chosen,
    python: str,
    host: str | None,
    port: int | None,
    api_key: str | None,
    log: Path | None,
) -> ServerOptions:
    """Options of `engine.server.app.serve` for this plan; the engine is `python -m engine`."""
    environment = this_environment()
    said = _from_file(chosen.server)
    said |= {k: v for k, v in (("host", host), ("port", port), ("log", log)) if v is not None}
    key = environment.get(API_KEY_VARIABLE) if api_key is None else api_key
    if key is not None:
        said["api_keys"] = (
            _checked_key(key, "--api-key" if api_key is not None else API_KEY_VARIABLE),
        )
    said.setdefault("model_name", model_tag(chosen.plan.config.model))
    if "log" in said and chosen.config_path is not None and log is None:
        said["log"] = chosen.config_path.parent / os.path.expanduser(said["log"])
    config = chosen.plan.config
    shown: Mapping[str, str] = {}
    if config.card is not None:  # the engine sees no other card, and counts from 0
        shown = card_environment(config.card.identity)
        config = replace(config, device="cuda:0")
    engine_env = {**environment, **chosen.server.get("env", {}), **shown}
    short, wait_s = admission(engine_env)
    return ServerOptions(
        engine=(python, "-m", "engine", "--serve", *engine_args(config)),
        engine_env=engine_env,
        admit_short_tokens=short,
        admit_max_wait_s=wait_s,
        synthetic=config.synthetic,
        gguf=chosen.plan.config.model,
        decisions=tuple(asdict(decision) for decision in chosen.plan.decisions),
        **said,
    )


def _from_file(server: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name in _SAME_NAME:
        if name in server:
            value = server[name]
            said[name] = tuple(value) if isinstance(value, list) else value
    if "api_key" in server:
        said["api_keys"] = (server["api_key"],)
    if "log" in server:
        said["log"] = Path(server["log"])
    if "sampling" in server:
        said["sampling"] = msgspec.convert(server["sampling"], SamplingFields)
    return said


def _checked_key(key: str, name: str) -> str:
    """An empty key would leave the server open to everybody without a word."""
    if not all(part.strip() for part in key.split(",")):
        raise ConfigError(f"{name} is empty", f"leave {name} out to serve without a key")
    return key
