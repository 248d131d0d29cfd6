"""Who can reach the server: its address, and whether anyone may use it."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def open_to_anyone(host: str, *, has_key: bool) -> str | None:
    """The warning about a server without a key on an address that others reach."""
    if has_key or is_loopback(host):
        return None
    return (
        f"host {host} without an api_key: anyone on the network can use it; set an api_key, or "
        "host 127.0.0.1"
    )


def shown_url(address: str, port: int) -> str:
    """The address that is bound, as a URL."""
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


def is_every_address(address: str) -> bool:
    """Whether the server listens on all addresses of this machine."""
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False
