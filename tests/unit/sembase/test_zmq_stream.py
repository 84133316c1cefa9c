"""Options and limits of the ZeroMQ stream; its faults: ``tests/integration/semgate/test_events_faults.py``."""

from __future__ import annotations

import pytest
import zmq

from sembase.errors import ConfigurationError
from sembase.zmq_stream import StreamOptions, new_context


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "10.0.0.7:5557", "tcp://host", "tcp://host:0", "http://h:1", ""])
def test_an_endpoint_without_an_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="expected an address such as tcp://"):
        StreamOptions(endpoint)
    with pytest.raises(ConfigurationError, match="expected an address such as tcp://"):
        StreamOptions("tcp://host:5557", endpoint)
    assert StreamOptions("tcp://[::1]:5557", "ipc:///tmp/events").topic == ""


def test_there_are_sockets_for_more_replicas_than_zeromq_allows_by_itself() -> None:
    context = new_context()
    assert context.get(zmq.MAX_SOCKETS) > 3 * 1024
    context.term()
