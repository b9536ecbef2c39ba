"""The listening socket."""

import socket

import pytest

from fairstep.errors import ConfigError
from fairstep.serving.listener import listen, url_of


def test_port_0_takes_a_free_one_and_its_address_is_told() -> None:
    with listen("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        assert url_of(listener) == f"http://{host}:{port}"
        with socket.create_connection((host, port), timeout=5):
            pass


def test_a_busy_port_is_told_in_one_line() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use by another program.*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no such host", "256.0.0.1", "."])
def test_an_address_that_is_none_is_told(host: str) -> None:
    with pytest.raises(ConfigError, match="host"):
        listen(host, 0)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        listen("192.0.2.1", 0)
