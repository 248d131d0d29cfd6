"""What a hub's answers mean: fine, try again, not there, or an error for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from engine.errors import ConfigError
from setup.models.hub.client import Endpoint
from setup.models.hub.retry import TransientError

_OTHER_MIRROR = "set HF_ENDPOINT to another mirror, or try again later"


class MissingError(Exception):
    """The hub has no such repository, revision or file."""


@contextmanager
def transport(host: str) -> Iterator[None]:
    """Turns what httpx raises into `TransientError`, or `ConfigError` where no attempt helps."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
        raise ConfigError(f"{host}: leads to a place of no use: {error}", _OTHER_MIRROR) from None
    except httpx.TimeoutException as error:
        what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no data came"
        raise TransientError(f"{host}: {what} in time") from None
    except httpx.RequestError as error:
        raise TransientError(
            f"{host}: the connection failed: {error or type(error).__name__}"
        ) from None


def check_status(response: httpx.Response, what: str, endpoint: Endpoint) -> None:
    """Returns for 2xx. Raises `MissingError` for 404, `TransientError` for 408, 429 and 5xx,
    `ConfigError` for the rest; no message ever holds the token."""
    own = endpoint.owns(response.url)
    status, host = response.status_code, response.url.host
    if response.is_success:
        return
    if status in (404, 410):
        raise MissingError(f"{host}: {what} is not there ({status})")
    if status in (401, 403) and not own:
        # Where the hub sends the client for the bytes, a permission lasts some minutes only.
        raise TransientError(f"{host}: the hub's permission is refused ({status})")
    if status in (401, 403):
        raise _refused(response, what, bool(endpoint.token))
    if status == 429:
        raise TransientError(f"{host}: too many requests (429)", _asked_pause(response))
    if status == 408 or status >= 500:
        raise TransientError(f"{host}: the server failed ({status})", _asked_pause(response))
    raise ConfigError(f"{what}: {host} answered with status {status}", _OTHER_MIRROR)


def _refused(response: httpx.Response, what: str, with_token: bool) -> ConfigError:
    status, host = response.status_code, response.url.host
    if response.headers.get("x-error-code") == "GatedRepo":
        return ConfigError(
            f"{what}: {host} gives it only to people who accepted its terms ({status})",
            "accept them on the model's page and set HF_TOKEN to a token of that account",
        )
    if with_token:
        return ConfigError(
            f"{what}: {host} refuses it to this token ({status})",
            "check that HF_TOKEN is valid and that its account may read the repository",
        )
    # The hub answers 401 for a repository that does not exist, too, when nobody is logged in.
    return ConfigError(
        f"{what}: {host} refuses it without a login ({status}), or has no such repository",
        "set HF_TOKEN to a token of an account that may read it",
    )


def _asked_pause(response: httpx.Response) -> float | None:
    """Seconds of Retry-After; None for a date or nothing."""
    text = response.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
