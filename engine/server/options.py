"""Everything that the server is told once, at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.errors import ConfigError
from engine.server.sampling import SamplingFields


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Settings of one server process. Times are seconds."""

    engine: Sequence[str]
    """The command of the engine process; it speaks `engine/protocol.py`."""
    engine_env: Mapping[str, str] | None = None
    """Its whole environment; `None`: this process's."""
    gguf: Path | None = None
    """The model file that the tokenizer and the chat template are read from."""
    synthetic: str | None = None
    """Random weights in place of the file."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free port (`Server.port` says which)."""
    model_name: str = "strata"
    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    """A request must carry one of them; one text may hold several, separated by commas. Empty: no
    key is asked for."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names beside loopback, addresses and `host` that a keyless server answers to."""
    cors_origins: tuple[str, ...] = ()
    trusted_origins: tuple[str, ...] = ()
    sampling: SamplingFields = field(default_factory=SamplingFields)
    """What a request gets where it says nothing."""
    fit_max_tokens: bool = False
    """Clamp an answer limit that does not fit in the context, instead of refusing it."""
    reasoning_budget_tokens: int = 0
    """Most tokens of reasoning where a request says nothing of it; 0: any number."""
    anthropic_thinking: Literal["model", "on_request"] = "on_request"
    """Whether /v1/messages thinks where a request says nothing of it: as the model's template does,
    or not at all, as Anthropic's own API."""
    queue_limit: int = 256
    """Requests that may wait for a slot; further ones get 429."""
    admit_short_tokens: int = 0
    """Waiting prompts of at most so many tokens get a slot before longer ones."""
    admit_max_wait_s: float = 30.0
    """A prompt that waited so long counts as short."""
    outbox_limit: int = 16384
    """Tokens that may wait for a client that does not read; then its request is ended."""
    log: Path | None = None
    """Where the engine's stderr is appended; `None`: this process's stderr."""
    keepalive_s: float = 10.0
    """Longest quiet time of a streamed answer; then a comment is sent."""
    max_body_bytes: int = 256 * 2**20
    head_timeout_s: float = 60.0
    """Longest time from a connection, or the first byte of a further request, to its whole head."""
    body_timeout_s: float = 60.0
    """Longest pause inside a request's body."""
    engine_ready_s: float = 900.0
    """Longest time from the start of the engine to its READY; 0: no limit."""
    engine_silence_s: float = 300.0
    """A busy engine that prints nothing for so long is killed and restarted; 0: no limit."""
    engine_restarts: int = 5
    """Deaths in a row, without an answer between them, before restarting stops."""
    restart_backoff_s: float = 0.5
    """Pause before the second restart in a row; doubles each time, at most a minute."""
    quit_s: float = 10.0
    """How long the engine gets to QUIT, and then to terminate, before it is killed."""
    shutdown_grace_s: float = 5.0
    """How long running answers get to end after SIGTERM or SIGINT."""
    backlog: int = 1024
    announce: Callable[[str], None] | None = None
    """Told in a sentence when the port answers, when requests are taken, and of deaths. `None`:
    serve() prints it to stderr."""
    decisions: tuple[Mapping[str, Any], ...] = field(default=())
    """What resolve() decided, as /v1/status shows it."""

    def __post_init__(self) -> None:
        if not self.engine:
            raise ConfigError("the engine command is empty")
        if any(not key for key in self.keys):
            raise ConfigError("api_key is empty", "leave it out to serve without a key")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: {self.port} is not a whole number from 0 to 65535")

    @property
    def keys(self) -> tuple[str, ...]:
        """Every API key, without the blanks around it."""
        return tuple(key.strip() for text in self.api_keys for key in text.split(","))
