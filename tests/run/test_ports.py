"""Which ports `up` gives its services: the usual ones, those asked for, and never one twice."""

import socket

import click
import pytest

from tasks.up import FLOWER_PORT, WEB_PORT, _ports


def test_a_port_that_was_asked_for_is_given_to_nobody_else() -> None:
    flower, web = _ports(None, FLOWER_PORT)
    assert web == FLOWER_PORT != flower
    flower, web = _ports(WEB_PORT, None)
    assert flower == WEB_PORT != web


def test_two_services_cannot_be_given_one_port() -> None:
    with pytest.raises(click.BadParameter, match="is that of --flower-port"):
        _ports(6000, 6000)


def test_a_port_that_somebody_listens_on_is_refused_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(click.BadParameter, match=f"port {port} is in use"):
            _ports(None, port)
