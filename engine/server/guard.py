"""Who may ask: the API key, the Host and Origin headers, and CORS."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.server.exposure import is_loopback
from engine.server.http_errors import ApiError
from engine.server.options import ServerOptions

PUBLIC = frozenset({"/", "/health", "/api/health"})


class Guard:
    """ASGI middleware in front of everything; also forgets a slash at the end of a path.

    Without a key a browser is the danger: any page may post to a port of this machine. So the
    server then answers only to names that are its own, and posts only from its own pages, loopback
    pages and listed origins. With a key the key decides.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._keys = [key.encode() for key in options.keys]
        self._hosts = {options.host.lower(), *(name.lower() for name in options.allowed_hosts)}
        self._cors = frozenset(options.cors_origins)
        self._trusted = self._cors | set(options.trusted_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 401 or 403."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].rstrip("/") or "/"
        scope = {**scope, "path": path, "raw_path": path.encode()}
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        allows = path.startswith("/v1/") and ("*" in self._cors or origin in self._cors)
        if origin and allows:
            send = _with_cors(send, origin)
        error = self._refusal(scope["method"], path, headers)
        if error is not None:
            await error.response(path)(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: Headers) -> ApiError | None:
        if method == "OPTIONS" or (self._keys and path in PUBLIC):
            return None
        if self._keys:
            if self._has_key(headers):
                return None
            return ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
        host = headers.get("host", "")
        if not self._own(host):
            return ApiError(
                403,
                f"the host {host!r} is not one of this server's names: add {_name(f'//{host}')!r} "
                "to allowed_hosts in its config, or give it an api_key",
            )
        origin = headers.get("origin")
        if method == "POST" and origin and not self._may_post(origin, host):
            return ApiError(
                403,
                f"the origin {origin!r} is not trusted: add it to trusted_origins in the server's "
                "config, or give the server an api_key",
            )
        return None

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        known = [hmac.compare_digest(given.strip().encode("latin-1"), key) for key in self._keys]
        return any(known)

    def _own(self, host: str) -> bool:
        name = _name(f"//{host}")
        return name in self._hosts or is_loopback(name) or _ip(name)

    def _may_post(self, origin: str, host: str) -> bool:
        if "*" in self._trusted or origin in self._trusted:
            return True
        name = _name(origin)
        own_page = urlsplit(origin).netloc.lower() == host.lower()
        return own_page or is_loopback(name)


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_cors(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
            headers["Access-Control-Allow-Headers"] = (
                "authorization, content-type, x-api-key, anthropic-version, anthropic-beta"
            )
            headers.add_vary_header("Origin")
            message = {**message, "headers": headers.raw}
        await send(message)

    return sending
