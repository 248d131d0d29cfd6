"""The endpoints that tell about the server."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from engine.server.bridge import Bridge
from engine.server.http_errors import ApiError
from engine.server.metrics import Metrics
from engine.server.options import ServerOptions
from engine.server.page import PAGE
from engine.server.prometheus import CONTENT_TYPE, exposition
from engine.server.text_model import TextModel
from engine.version import __version__

_HEALTH = {"ready": "ok", "failed": "error", "stopped": "stopping"}


class Status:
    """Handlers that read the bridge and the metrics and change nothing."""

    def __init__(
        self, options: ServerOptions, text: TextModel, bridge: Bridge, metrics: Metrics
    ) -> None:
        self._options = options
        self._text = text
        self._bridge = bridge
        self._metrics = metrics
        self._started = time.time()

    async def page(self, request: Request) -> Response:
        """GET /: a page that says where the API is."""
        return HTMLResponse(PAGE)

    async def health(self, request: Request) -> Response:
        """GET /health: 200 with "ok" when requests are taken, else 503 with why not."""
        lives = self._bridge.lives
        document = {
            "status": _HEALTH.get(lives.state, lives.state),
            "service": "strata",
            "model": self._options.model_name,
            "loaded": lives.state == "ready",
            "max_context": self._bridge.max_context,
            "images": False,
            "api_key": bool(self._options.api_keys),
        }
        return JSONResponse(document, 200 if lives.state == "ready" else 503)

    async def models(self, request: Request) -> Response:
        """GET /v1/models: the model and its aliases."""
        return JSONResponse({"object": "list", "data": self._models()})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME: one of them. Raises `ApiError` 404."""
        name = request.path_params["name"]
        for model in self._models():
            if model["id"] == name:
                return JSONResponse(model)
        what = f"the model {name!r} does not exist; this one is {self._options.model_name!r}"
        raise ApiError(404, what, param="model", code="model_not_found")

    def _models(self) -> list[dict[str, Any]]:
        options, context = self._options, self._bridge.max_context
        loaded = "loaded" if self._bridge.lives.state == "ready" else "unloaded"
        models: list[dict[str, Any]] = []
        for name in (options.model_name, *options.aliases):
            model: dict[str, Any] = {
                "id": name,
                "object": "model",
                "created": int(self._started),
                "owned_by": "strata",
                "status": {"value": loaded},
                "meta": {"n_ctx": context},
                "max_model_len": context,
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            }
            if name == options.model_name:
                model["aliases"] = list(options.aliases)
            else:
                model["alias_of"] = options.model_name
            models.append(model)
        return models

    async def status(self, request: Request) -> Response:
        """GET /v1/status: engine, concurrency, activity and the decisions of the start."""
        bridge, lives = self._bridge, self._bridge.lives
        rows = self._metrics.requests
        document = {
            "service": "strata",
            "version": __version__,
            "model": self._options.model_name,
            "loaded": lives.state == "ready",
            "state": lives.state,
            "engine": bridge.info.get("engine", ""),
            "engine_info": bridge.info,
            "engine_lives": lives.started,
            "engine_deaths": lives.deaths,
            "last_death": lives.last_death,
            "started": self._started,
            "uptime_s": time.time() - self._started,
            "cache_max_tokens": bridge.max_context,
            "context": {"max_positions": bridge.max_context},
            "concurrency": {
                "serving": len(bridge.slots),
                "requested": bridge.info.get("batch_slots_asked", len(bridge.slots)),
                "queue_limit": self._options.queue_limit,
            },
            "dialects": [
                "openai-chat",
                "openai-completions",
                "openai-responses",
                "anthropic-messages",
            ],
            "structured_output": {
                "formats": ["json_object", "json_schema"],
                "constrained_decoding": bool(bridge.info.get("grammars")),
            },
            "vision": {"enabled": False, "available": False},
            "activity": {
                "requests": int(self._metrics.totals["requests"]),
                "in_flight": len(bridge.running) + len(bridge.queue),
                "last_request_at": rows[0]["time"] if rows else None,
            },
            "live": self._metrics.live(),
            "last_timings": rows[0] if rows else None,
            "decisions": list(self._options.decisions),
        }
        return JSONResponse(document)

    async def props(self, request: Request) -> Response:
        """GET /props, in llama.cpp's words: what programs made for its server ask first."""
        bridge, options = self._bridge, self._options
        sampling = {k: v for k, v in msgspec.to_builtins(options.sampling).items() if v is not None}
        document = {
            "default_generation_settings": {
                "n_ctx": bridge.max_context,
                "params": {**sampling, "n_predict": -1},
            },
            "total_slots": len(bridge.slots),
            "model_alias": options.model_name,
            "model_path": "" if options.gguf is None else options.gguf.name,
            "chat_template": self._text.chat_template,
            "modalities": {"vision": False, "audio": False},
            "build_info": f"strata {__version__}",
            "is_sleeping": False,
        }
        return JSONResponse(document)

    async def slots(self, request: Request) -> Response:
        """GET /slots, in llama.cpp's words."""
        context = self._bridge.max_context
        entries = [
            {
                "id": slot["slot"],
                "n_ctx": context,
                "is_processing": slot["state"] != "idle",
                "n_prompt_tokens": slot.get("prompt_tokens", 0),
                "n_decoded": slot.get("generated", 0),
            }
            for slot in self._metrics.slots()
        ]
        return JSONResponse(entries)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: JSON, or Prometheus by `Accept` or `?format=prometheus`."""
        accept = request.headers.get("accept", "")
        wanted = request.query_params.get("format", "")
        text = any(kind in accept for kind in ("text/plain", "openmetrics"))
        if wanted == "prometheus" or (text and wanted != "json"):
            page = exposition(self._metrics, self._options.model_name)
            return PlainTextResponse(page, media_type=CONTENT_TYPE)
        every = request.query_params.get("requests") == "all"
        return JSONResponse(self._metrics.document(every))
