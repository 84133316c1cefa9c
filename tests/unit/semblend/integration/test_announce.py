from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from tests.waiting import PATIENCE_S, wait_until

from sembase.errors import ConfigurationError
from sembase.ordered_stream import END
from semblend.contract import FaultContained
from semblend.contract.donor_event import (
    TOPIC,
    DonorAnnounced,
    DonorBatch,
    DonorEvent,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GatesAnnounced,
    GenerationReset,
    decode_batch,
    namespace_digest,
    tenant_of_salt,
)
from semblend.donors.index import announced_gates
from semblend.donors.packing import pack
from semblend.fingerprint.anchors import select_anchors
from semblend.integration import announce
from semblend.integration.announce import SILENT, DonorAnnouncer, open_announcer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.plan.gates import Gates
from semblend.settings import Settings

KEY = b"a key for tests only"
LOG = logging.getLogger("announce")


class Recorder:
    """A socket that keeps what is published; ``gate`` holds the announcer's thread in its first message."""

    def __init__(self) -> None:
        self.events: list[DonorEvent] = []
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.closed = False
        self.asked = False

    def publish(self, batch: DonorBatch) -> None:
        assert self.gate.wait(PATIENCE_S)
        if self.fails:
            self.fails = False
            raise OSError("no route")
        self.events.extend(batch.events)
        self.sizes.append(len(pack(batch)))

    def answer(self) -> bool:
        asked, self.asked = self.asked, False
        return asked

    def close(self) -> None:
        self.closed = True


@contextmanager
def announcing(recorder: Recorder) -> Iterator[tuple[DonorAnnouncer, list[FaultContained]]]:
    faults: list[FaultContained] = []
    announcer = DonorAnnouncer(lambda: recorder, KEY, Border(faults.append, LOG))
    try:
        yield announcer, faults
    finally:
        recorder.gate.set()
        announcer.close(patience_s=PATIENCE_S)
        assert recorder.closed


def test_a_batch_of_long_donors_is_split_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber refuses a message that is too large, and would request it again."""
    monkeypatch.setattr(announce, "BATCH_BYTES", 2_000)
    recorder = Recorder()
    with announcing(recorder) as (announcer, _):
        recorder.gate.clear()
        for seed in range(20):
            announcer.loadable(f"{seed}", tokens(seed, 1_500), None, None)
        recorder.gate.set()
        wait_until(lambda: sum(isinstance(event, DonorAnnounced) for event in recorder.events) == 20)
        recorder.asked = True
        wait_until(lambda: sum(isinstance(event, DonorAnnounced) for event in recorder.events) == 40)
    assert max(recorder.sizes) < 2_000 + 2_000, "at most one donor more"


def tokens(seed: int, count: int = 300) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(seed).integers(0, 1000, count).astype(np.uint32)


def ids(events: list[DonorEvent], kind: type) -> list[str]:
    return [event.donor_id for event in events if isinstance(event, kind)]  # type: ignore[union-attr]


def test_a_donors_life_is_announced_in_order() -> None:
    recorder = Recorder()
    tenant = tenant_of_salt("acme")
    with announcing(recorder) as (announcer, faults):
        announcer.loadable("a", tokens(1), tenant, None)
        announcer.relocated("a", "device")
        announcer.withdrawn("a", "capacity")
        announcer.withdrawn("a", "capacity")
        announcer.relocated("a", "host")
    assert not faults
    assert [type(event) for event in recorder.events] == [
        GenerationReset,
        DonorAnnounced,
        DonorRelocated,
        DonorWithdrawn,
        DonorsPurged,
    ]
    donor = recorder.events[1]
    assert isinstance(donor, DonorAnnounced)
    assert donor.namespace == namespace_digest(KEY, tenant, None)
    assert donor.tokens == 300
    plain = select_anchors(tokens(1))
    positions = np.frombuffer(donor.positions, "<u4")
    assert positions.tolist() == plain.positions.tolist()
    assert not np.intersect1d(np.frombuffer(donor.anchors, "<u8"), plain.hashes).size, "an unkeyed anchor left"


def test_gates_are_announced_with_every_new_generation() -> None:
    recorder = Recorder()
    gates = Gates(min_run_tokens=96, max_context_share=0.5)
    announcer = DonorAnnouncer(lambda: recorder, KEY, Border(lambda _: None, LOG), gates=gates)
    announcer.loadable("a", tokens(1), None, None)
    wait_until(lambda: len(recorder.events) == 3)
    recorder.asked = True
    wait_until(lambda: len(recorder.events) == 6)
    announcer.close(patience_s=PATIENCE_S)
    kinds = [type(event) for event in recorder.events]
    assert kinds == [GenerationReset, GatesAnnounced, DonorAnnounced] * 2 + [DonorsPurged]
    announced = [announced_gates(event.gates) for event in recorder.events if isinstance(event, GatesAnnounced)]
    assert announced == [gates, gates]


def test_equal_texts_of_two_tenants_share_no_anchor() -> None:
    recorder = Recorder()
    with announcing(recorder) as (announcer, _):
        announcer.loadable("a", tokens(1), tenant_of_salt("one"), None)
        announcer.loadable("b", tokens(1), tenant_of_salt("two"), None)
    one, two = (np.frombuffer(e.anchors, "<u8") for e in recorder.events if isinstance(e, DonorAnnounced))
    assert len(one)
    assert not np.intersect1d(one, two).size


def test_a_request_beyond_the_buffer_brings_all_living_donors() -> None:
    recorder = Recorder()
    with announcing(recorder) as (announcer, _):
        for number in range(3):
            announcer.loadable(f"d{number}", tokens(number), None, None)
        announcer.withdrawn("d1", "capacity")
        wait_until(lambda: len(recorder.events) == 5)
        recorder.asked = True
        wait_until(lambda: len(recorder.events) == 8)
        assert isinstance(recorder.events[5], GenerationReset)
        assert ids(recorder.events[6:], DonorAnnounced) == ["d0", "d2"]


def test_a_full_queue_makes_routers_forget_and_never_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "QUEUE_LIMIT", 4)
    recorder = Recorder()
    recorder.gate.clear()
    with announcing(recorder) as (announcer, faults):
        for number in range(50):
            announcer.loadable(f"d{number}", tokens(number), None, None)
        assert announcer.lost >= 40
        recorder.gate.set()
        wait_until(lambda: sum(isinstance(e, GenerationReset) for e in recorder.events) == 2)
        recorder.events.clear()
        announcer.loadable("later", tokens(1), None, None)
        wait_until(lambda: ids(recorder.events, DonorAnnounced) == ["later"])
    assert not faults


def test_a_message_that_could_not_be_sent_is_counted_and_makes_routers_forget() -> None:
    recorder = Recorder()
    with announcing(recorder) as (announcer, faults):
        wait_until(lambda: len(recorder.events) == 1)
        recorder.fails = True
        announcer.withdrawn("unknown", "x")  # nothing to say, nothing to fail
        announcer.loadable("a", tokens(1), None, None)
        wait_until(lambda: sum(isinstance(e, GenerationReset) for e in recorder.events) == 2)
    assert [fault.stage for fault in faults] == ["announce"]
    assert "no route" in faults[0].error


def test_a_socket_that_cannot_be_opened_is_a_fault_and_nothing_else() -> None:
    faults: list[FaultContained] = []

    def refuse() -> Recorder:
        raise OSError("address in use")

    announcer = DonorAnnouncer(refuse, KEY, Border(faults.append, LOG))
    wait_until(lambda: bool(faults) and announcer._is_disabled)
    announcer._queue.queue.clear()
    announcer.loadable("a", tokens(1), None, None)
    assert announcer._queue.empty(), "it will never be read"
    announcer.close()
    assert "address in use" in faults[0].error


def read(frames: list[bytes]) -> tuple[int, DonorBatch]:
    return int.from_bytes(frames[-2], "big"), decode_batch(msgspec.msgpack.decode(frames[-1]))


def test_real_sockets_publish_number_and_repeat() -> None:
    socket = DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", buffer_batches=2)
    events, replay = socket.endpoints
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    reader, asker = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    try:
        reader.setsockopt(zmq.RCVTIMEO, 10_000)
        asker.setsockopt(zmq.RCVTIMEO, 10_000)
        reader.connect(events)
        asker.connect(replay)
        reader.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        first = None
        for number in range(2_000):  # a subscription takes a moment to arrive
            socket.publish(DonorBatch(1.0, (GenerationReset(number),)))
            if reader.poll(5):
                first = read(reader.recv_multipart())
                break
        assert first is not None
        assert first[1].events == (GenerationReset(first[0] - socket.buffer.first),)
        asker.send_multipart((b"", (0).to_bytes(8, "big")))
        lacks = False
        while not asker.poll(20):
            lacks |= socket.answer()
        assert lacks is (number > 1)
        answers = []
        while (frames := asker.recv_multipart())[-2] != END:
            answers.append(read(frames)[0] - socket.buffer.first)
        assert answers == list(range(max(0, number - 1), number + 1))
    finally:
        reader.close(0)
        asker.close(0)
        context.term()
        socket.close()


def test_bad_settings_are_refused_at_once(tmp_path: Path) -> None:
    settings = Settings(donor_events="tcp://127.0.0.1:*", donor_events_key_file=tmp_path / "none")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_announcer(settings, Border(lambda _: None, LOG), Gates())


def test_nothing_is_announced_where_nothing_is_configured() -> None:
    SILENT.loadable("a", tokens(1), None, None)
    SILENT.withdrawn("a", "x")
    SILENT.relocated("a", "host")
    SILENT.purged("x")
    SILENT.close()
