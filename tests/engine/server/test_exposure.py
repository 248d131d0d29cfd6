"""Whether others reach the server, and how its address is shown."""

from __future__ import annotations

import pytest

from engine.server.exposure import is_every_address, open_to_anyone, shown_url


@pytest.mark.parametrize(
    ("host", "risky"),
    [
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("::1", False),
        ("localhost", False),
        ("a.localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.168.1.2", True),
        ("fe80::1%eth0", True),
        ("office.lan", True),
    ],
)
def test_without_a_key_only_this_machine_is_safe(host: str, risky: bool) -> None:
    warning = open_to_anyone(host, has_key=False)
    assert (warning is not None) == risky
    assert warning is None or f"host {host} without an api_key" in warning
    assert open_to_anyone(host, has_key=True) is None


def test_the_bound_address_is_shown() -> None:
    assert shown_url("0.0.0.0", 8099) == "http://0.0.0.0:8099"
    assert shown_url("::1", 80) == "http://[::1]:80"
    assert is_every_address("0.0.0.0")
    assert is_every_address("::")
    assert not is_every_address("127.0.0.1")
