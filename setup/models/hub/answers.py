"""What a hub's answers mean: fine, try again, not there, or an error for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from engine.errors import ConfigError
from setup.models.hub.client import Endpoint
from setup.models.hub.retry import TransientError
from setup.models.hub.shown import shown, whole_number

_OTHER_MIRROR = "set HF_ENDPOINT to another mirror, or try again later"


class MissingError(Exception):
    """The hub has no such repository, revision or file."""


@contextmanager
def transport(host: str) -> Iterator[None]:
    """Turns what httpx raises into `TransientError`, or `ConfigError` where no attempt helps."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
        raise _of_no_use(host, error) from None
    except (UnicodeError, OverflowError) as error:
        # From the system's own functions: names of hosts that cannot be asked for, and ports.
        raise _of_no_use(host, error) from None
    except httpx.TimeoutException as error:
        what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no data came"
        raise TransientError(f"{host}: {what} in time") from None
    except httpx.RequestError as error:
        if isinstance(error.__context__, httpx.InvalidURL):
            raise _of_no_use(host, error) from None
        said = shown(error) or type(error).__name__
        what = (
            "the proxy refuses" if isinstance(error, httpx.ProxyError) else "the connection failed"
        )
        raise TransientError(f"{host}: {what}: {said}") from None


def bad_answer(host: str, what: str) -> ConfigError:
    """The error for a server that says something impossible."""
    return ConfigError(f"{host}: gave a bad answer: {what}", _OTHER_MIRROR)


def _of_no_use(host: str, error: Exception) -> ConfigError:
    return ConfigError(f"{host}: leads to a place of no use: {shown(error)}", _OTHER_MIRROR)


def check_status(response: httpx.Response, what: str, endpoint: Endpoint) -> None:
    """Returns for 2xx. Raises `MissingError` for 404, `TransientError` for 408, 429 and 5xx,
    `ConfigError` for the rest; no message ever holds the token."""
    own = endpoint.owns(response.url)
    status, host = response.status_code, shown(response.url.host)
    if response.is_success:
        return
    if status in (404, 410):
        raise MissingError(f"{host}: {what} is not there ({status})")
    if status in (401, 403) and not own:
        # Where the hub sends the client for the bytes, a permission lasts some minutes only.
        raise TransientError(f"{host}: the hub's permission is refused ({status})")
    if status in (401, 403):
        raise _refused(response, what, bool(endpoint.token))
    if status == 407:
        raise ConfigError(
            f"{what}: the proxy on the way to {host} wants a login (407)",
            "set HTTP_PROXY and HTTPS_PROXY to an address with name and password, or NO_PROXY",
        )
    if status == 429:
        raise TransientError(f"{host}: too many requests (429)", _asked_pause(response))
    if status == 408 or status >= 500:
        raise TransientError(f"{host}: the server failed ({status})", _asked_pause(response))
    raise ConfigError(f"{what}: {host} answered with status {status}", _OTHER_MIRROR)


def _refused(response: httpx.Response, what: str, with_token: bool) -> ConfigError:
    status, host = response.status_code, shown(response.url.host)
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
    return whole_number(response.headers.get("retry-after", ""))
