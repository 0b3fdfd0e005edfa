"""A peer that vanishes without a word is noticed by the kernel, since a silent watch proves nothing."""

from __future__ import annotations

import socket

import pytest

from asyncop.client.transport import PROBES, _socket


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_sockets_ask_a_silent_peer_and_give_up_within_a_minute(family: socket.AddressFamily) -> None:
    with _socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("", 0))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for name, value in PROBES.items():
            if hasattr(socket, name):
                assert made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    assert PROBES["TCP_KEEPIDLE"] + PROBES["TCP_KEEPINTVL"] * PROBES["TCP_KEEPCNT"] <= 60
