"""The connection to a hub: which one, with which token, and its addresses."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from engine.errors import ConfigError
from engine.version import __version__
from setup.models.hub.retry import Limits

DEFAULT_ENDPOINT = "https://huggingface.co"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A hub's address and the token for it, which is never shown."""

    url: httpx.URL
    token: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """Its name in messages."""
        return self.url.host

    def address(self, before: str, revision: str, path: str) -> str:
        """The address of `path` at `revision`, behind the words `before`, such as `a/b/resolve`."""
        # A branch may have a slash in its name, which must not look like one of the path.
        parts = (str(self.url).rstrip("/"), before, quote(revision, safe=""), quote(path))
        return "/".join(part for part in parts if part)

    def owns(self, address: str | httpx.URL) -> bool:
        """True for an address of this hub, which may see the token."""
        target = httpx.URL(address)
        own = (self.url.scheme, self.url.host, self.url.port)
        return (target.scheme, target.host, target.port) == own

    def headers(self, address: str) -> dict[str, str]:
        """The token, for the hub's own addresses and no others."""
        shown = self.token and self.owns(address)
        return {"Authorization": f"Bearer {self.token}"} if shown else {}


def read_endpoint(environment: Mapping[str, str]) -> Endpoint:
    """The hub of `HF_ENDPOINT` (default huggingface.co) with the token of `HF_TOKEN`.

    Raises `ConfigError` for an address that is not http or https, and for a token that cannot be
    sent; its message does not show the token.
    """
    asked = environment.get("HF_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    try:
        url = httpx.URL(asked)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.userinfo:
        raise ConfigError(
            f"HF_ENDPOINT is {_shown(url, asked)!r}, not the http or https address of a hub",
            f"an example is {DEFAULT_ENDPOINT}",
        )
    token = environment.get("HF_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(
            "HF_TOKEN holds characters that no token has", "copy it again from the hub's settings"
        )
    return Endpoint(url=url, token=token)


def check_repository(name: str) -> str:
    """`name` when it is `owner/name`; raises `ConfigError` else."""
    if not _REPOSITORY.fullmatch(name) or ".." in name:
        raise ConfigError(f"repository {name[:100]!r} is not of the form owner/name")
    return name


def open_client(limits: Limits, trusted: ssl.SSLContext | None = None) -> httpx.Client:
    """A client that follows redirects; httpx drops the token when one leads to another host.

    `trusted`: the certificates to trust, else httpx's own. Proxies are the ones that httpx finds.
    """
    timeout = httpx.Timeout(limits.stall_s, connect=limits.connect_s)
    # Encoded bodies would make ranges and lengths count other bytes than the file's.
    headers = {"User-Agent": f"strata/{__version__}", "Accept-Encoding": "identity"}
    return httpx.Client(
        timeout=timeout, headers=headers, follow_redirects=True, verify=trusted or True
    )


def _shown(url: httpx.URL, asked: str) -> str:
    """The address without a password in it."""
    return str(url.copy_with(userinfo=b"")) if url.userinfo else asked[:200]
