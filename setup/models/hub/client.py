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
from setup.models.hub.shown import shown

DEFAULT_ENDPOINT = "https://huggingface.co"
# Labels of 63 characters and 253 of all: RFC 1035, 2.3.4; names in use have underscores, too.
_HOST = re.compile(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", re.ASCII)
_MOST_HOST = 253
_EXTRA = {"@": "a user name or password", "?": "a query", "#": "a fragment", "\\": "a backslash"}
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A hub's address and the token for it, which is never shown."""

    url: httpx.URL = field(repr=False)
    token: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """Its name in messages."""
        return shown(self.url.host)

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

    Raises `ConfigError` for an address that is not http or https, or has anything but a host, a
    port and a path, and for a token that cannot be sent. No message shows more than scheme and
    host: an address may hold a password anywhere.
    """
    asked = environment.get("HF_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    try:
        url = httpx.URL(asked)
    except httpx.InvalidURL:
        raise _no_hub("is not the http or https address of a hub") from None
    if fault := address_fault(url):
        raise _no_hub(f"is not the address of a hub: {fault}")
    if extra := [name for char, name in _EXTRA.items() if char in asked]:
        raise _no_hub(
            f"is an address at {url.scheme}://{shown(url.host)} with {extra[0]}, which is not sent"
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
    Raises `ConfigError` when a proxy or the certificates that the environment names are of no use.
    """
    timeout = httpx.Timeout(limits.stall_s, connect=limits.connect_s)
    # Encoded bodies would make ranges and lengths count other bytes than the file's.
    headers = {"User-Agent": f"strata/{__version__}", "Accept-Encoding": "identity"}
    try:
        return httpx.Client(
            timeout=timeout,
            headers=headers,
            follow_redirects=True,
            verify=trusted or True,
            event_hooks={"request": [_check_address]},
        )
    except OSError as error:
        raise ConfigError(
            f"the certificates to trust cannot be read: {error.strerror or type(error).__name__}",
            "SSL_CERT_FILE and SSL_CERT_DIR name other certificates: correct or unset them",
        ) from None
    except (ValueError, ImportError, httpx.InvalidURL):
        # Not what httpx says about it: a proxy's address often has a password.
        raise ConfigError(
            "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used",
            "an example is http://proxy.example:3128; NO_PROXY names hosts to ask without it",
        ) from None


def address_fault(url: httpx.URL) -> str:
    """What makes `url` no address of a server, without a word of it; empty for a sound one."""
    if url.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    host = url.raw_host.decode("ascii", "replace")
    # Only the numbers of IPv6 have colons; httpx has read those.
    if not host or (":" not in host and not (_HOST.fullmatch(host) and len(host) <= _MOST_HOST)):
        return "its host is no name or number of a machine"
    if url.port is not None and not 1 <= url.port <= 65535:
        return "its port is not one of 1 to 65535"
    return ""


def _check_address(request: httpx.Request) -> None:
    """Before every request, also those that a server's redirect asks for."""
    if fault := address_fault(request.url):
        raise httpx.InvalidURL(fault)


def _no_hub(what: str) -> ConfigError:
    return ConfigError(f"HF_ENDPOINT {what}", f"an example is {DEFAULT_ENDPOINT}")
