"""The server's settings: flags over the config file over the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ConfigError
from engine.flags import engine_args
from engine.server.options import ServerOptions
from engine.server.sampling import SamplingFields
from engine.switches import this_environment
from setup.models import model_tag
from strata_cli.chosen import Chosen

_SAME_NAME = (
    "fit_max_tokens",
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
    said = _from_file(chosen.server)
    said |= {k: v for k, v in (("host", host), ("port", port), ("log", log)) if v is not None}
    if api_key is not None:
        said["api_keys"] = (api_key,)
    said.setdefault("model_name", model_tag(chosen.plan.config.model))
    if "log" in said and chosen.config_path is not None and log is None:
        said["log"] = chosen.config_path.parent / said["log"]
    return ServerOptions(
        engine=(python, "-m", "engine", "--serve", *engine_args(chosen.plan.config)),
        engine_env={**this_environment(), **chosen.server.get("env", {})},
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
        keys = server["api_key"]
        said["api_keys"] = tuple(keys) if isinstance(keys, list) else (keys,)
    if "log" in server:
        said["log"] = Path(server["log"])
    if "sampling" in server:
        try:
            said["sampling"] = msgspec.convert(server["sampling"], SamplingFields)
        except msgspec.ValidationError as error:
            raise ConfigError(f"sampling: {error}") from None
    return said
