"""``python -m scripts.data``: fetch from a loopback server, verify, and the made-up files in place of absent ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from benchmarks.documents import READERS, read_documents
from benchmarks.estimate.planted import read_texts
from scripts.data import __main__ as data
from scripts.data.__main__ import PARTS, check, fetch, main
from scripts.data.download import download
from scripts.data.folder import find_data
from scripts.data.made_up import write_made_up
from scripts.data.sources import FILES, DataFile

from sembase.trace.load import load_trace


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _zip(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


BODIES = {
    "/plain.csv": b"a,b\n1,2\n",
    "/packed.gz": gzip.compress(b"packed\n"),
    "/tar": _tar({"top/calls/b.jsonl": b"second", "top/calls/a.jsonl": b"first\n", "top/README.md": b"no"}),
    "/objects": _tar({"top/t/2.json": b'{"n": 2}', "top/t/1.json": b'{\n "n": 1\n}'}),
    "/zip": _zip({"data/news.jsonl": b"news\n", "data/other.jsonl": b"other\n"}),
}
CONTENTS = {
    "plain.csv.gz": ("/plain.csv", "", b"a,b\n1,2\n"),
    "sub/packed.gz": ("/packed.gz", "", b"packed\n"),
    "joined.jsonl.gz": ("/tar", "*/calls/*.jsonl", b"first\nsecond\n"),
    "objects.jsonl.gz": ("/objects", "*/t/*.json", b'{"n":1}\n{"n":2}\n'),
    "news.jsonl.gz": ("/zip", "data/news.jsonl", b"news\n"),
}


LONG = bytes(range(256)) * 40
BROKEN_AT = 3_000


class _Handler(BaseHTTPRequestHandler):
    """Files of ``BODIES``; ``/long``: ``LONG``, in pieces of ``BROKEN_AT`` bytes, by a server that keeps to ranges."""

    def do_GET(self) -> None:
        ranges = self.server.ranges  # type: ignore[attr-defined]
        if self.path.startswith("/long"):
            asked = self.headers["Range"]
            ranges.append(asked)
            mark = f'"version-{self.path.count("x")}"'
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.headers["If-Range"] == mark else 0
            if start >= len(LONG):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(LONG) - 1}/{len(LONG)}")
            if "unmarked" not in self.path:
                self.send_header("ETag", mark)
            self.send_header("Content-Length", str(len(LONG) - start))
            self.end_headers()
            self.wfile.write(LONG[start : start + BROKEN_AT])
            return
        body = BODIES.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """``ranges``: what requests for ``/long`` asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.ranges = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def files(server: ThreadingHTTPServer) -> list[DataFile]:
    origin = f"http://127.0.0.1:{server.server_port}"
    return [
        DataFile(name, origin + path, "MIT", hashlib.sha256(content).hexdigest(), members)
        for name, (path, members, content) in CONTENTS.items()
    ]


def _long(files: list[DataFile], path: str = "/long") -> DataFile:
    origin = files[0].address.removesuffix("/plain.csv")
    return DataFile("long.gz", origin + path, "MIT", hashlib.sha256(LONG).hexdigest())


def test_fetched_files_have_the_content_of_their_sources(files: list[DataFile], tmp_path: Path) -> None:
    assert fetch(files, tmp_path) == 0
    for name, (_, _, content) in CONTENTS.items():
        assert gzip.decompress((tmp_path / name).read_bytes()) == content
    assert check(files, tmp_path) == 0


def test_files_that_are_there_are_not_fetched_again(files: list[DataFile], tmp_path: Path) -> None:
    assert fetch(files, tmp_path) == 0

    def refuse(address: str, parts: Path) -> bytes:
        raise AssertionError(address)

    assert fetch(files, tmp_path, refuse) == 0


def test_a_source_that_is_gone_fails_and_the_others_are_fetched(
    files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = replace(files[0], address=files[0].address + ".gone")
    no_member = replace(files[4], members="data/absent.jsonl")
    assert fetch([gone, no_member, files[1]], tmp_path) == 1
    printed = capsys.readouterr()
    assert "404" in printed.out
    assert "no data/absent.jsonl" in printed.out
    assert "2 of 3 files not fetched" in printed.err
    assert (tmp_path / files[1].file).is_file()


def test_an_interrupted_download_is_continued_where_it_ended(
    server: ThreadingHTTPServer, files: list[DataFile], tmp_path: Path
) -> None:
    assert fetch([_long(files)], tmp_path) == 0
    assert check([_long(files)], tmp_path) == 0
    asked = [None, *(f"bytes={start}-" for start in range(BROKEN_AT, len(LONG), BROKEN_AT))]
    assert server.ranges == asked  # type: ignore[attr-defined]
    assert not list((tmp_path / PARTS).iterdir()), "nothing is left over"


def test_the_next_run_continues_and_a_changed_file_begins_again(
    server: ThreadingHTTPServer, files: list[DataFile], tmp_path: Path
) -> None:
    part = tmp_path / PARTS / hashlib.sha256(_long(files).address.encode()).hexdigest()[:16]
    part.parent.mkdir()
    for version, first in (('"version-0"', "bytes=9000-"), ('"older"', "bytes=9000-")):
        (tmp_path / "long.gz").unlink(missing_ok=True)
        part.write_bytes(LONG[:9_000] if version == '"version-0"' else b"o" * 9_000)
        part.with_suffix(".etag").write_text(version)
        server.ranges.clear()  # type: ignore[attr-defined]
        assert fetch([_long(files)], tmp_path) == 0
        assert server.ranges[0] == first  # type: ignore[attr-defined]
        assert check([_long(files)], tmp_path) == 0, "never joined from two versions"


def test_a_part_that_is_longer_than_the_file_is_thrown_away(files: list[DataFile], tmp_path: Path) -> None:
    part = tmp_path / PARTS / hashlib.sha256(_long(files).address.encode()).hexdigest()[:16]
    part.parent.mkdir()
    part.write_bytes(LONG + b"more")
    part.with_suffix(".etag").write_text('"version-0"')
    assert fetch([_long(files)], tmp_path) == 0
    assert check([_long(files)], tmp_path) == 0


def test_without_a_version_nothing_is_joined(
    server: ThreadingHTTPServer, files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch([_long(files, "/long-unmarked")], tmp_path) == 1
    printed = capsys.readouterr()
    assert f"the connection ended {len(LONG) - BROKEN_AT:,} bytes early\n" in printed.out
    assert not (tmp_path / "long.gz").exists()
    assert server.ranges == [None]  # type: ignore[attr-defined]


def test_a_damaged_archive_is_reported_and_the_others_are_fetched(
    files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(address: str, parts: Path) -> bytes:
        body = download(address, parts)
        return body if address.endswith(".csv") else body[: len(body) // 2]

    assert fetch(files, tmp_path, cut) == 1
    printed = capsys.readouterr()
    assert printed.out.count("damaged") == len(files) - 1, printed.out
    assert (tmp_path / files[0].file).is_file()


def test_without_a_network_every_address_is_tried_once_and_the_message_says_what_to_do(
    files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def unreachable(address: str, parts: Path) -> bytes:
        tried.append(address)
        raise OSError("Temporary failure in name resolution")

    assert fetch([*files, replace(files[2], file="from-the-same-archive.gz")], tmp_path, unreachable) == 1
    assert len(tried) == len(files)
    printed = capsys.readouterr()
    assert printed.out.count("NOT FETCHED") == len(files) + 1
    assert "6 of 6 files not fetched. Run the command again" in printed.err
    assert "made-up files" in printed.err
    monkeypatch.setattr(data, "PLACES", (tmp_path,))
    monkeypatch.setattr(data, "MADE_UP", tmp_path / "made-up")
    monkeypatch.setattr(data, "write_made_up", lambda folder: (folder / "text").mkdir(parents=True))
    assert main(["--or-made-up"]) == 0
    assert "MADE-UP DATA" in capsys.readouterr().err
    assert (tmp_path / "made-up" / "text").is_dir(), "the failed attempt does not pass for data"


def test_an_address_that_refuses_the_connection_is_reported(
    files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as closed:
        port = closed.server_port
    assert fetch([replace(files[0], address=f"http://127.0.0.1:{port}/plain.csv")], tmp_path) == 1
    assert "refused" in capsys.readouterr().out


def test_other_content_is_reported(files: list[DataFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = replace(files[0], sha256="0" * 64)
    assert fetch([changed], tmp_path) == 0
    assert "DIFFERENT CONTENT" in capsys.readouterr().out
    assert main(["--check", "--folder", str(tmp_path)], [changed]) == 1
    assert "0 of 1 files as measured" in capsys.readouterr().out


def test_every_file_has_address_licence_and_checksum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert len({each.file for each in FILES}) == len(FILES)
    for each in FILES:
        assert each.address.startswith("https://")
        assert len(each.sha256) == 64
        assert each.licence
        assert bool(each.members) == bool(each.derived), each.file
        assert f"{each.file}\n  {each.licence}" in printed


def test_the_first_place_that_exists_is_read(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert find_data((first, second)) == first
    (second / "text").mkdir(parents=True)
    assert find_data((first, second)) == second


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made-up")
    write_made_up(folder)
    return folder


def test_made_up_files_replace_all_but_the_chinese_ones(made_up: Path) -> None:
    written = {path.relative_to(made_up).as_posix() for path in made_up.rglob("*.gz")}
    assert {each.file for each in FILES} - written == {
        "text/longbench/multifieldqa_zh.jsonl.gz",
        "text/longbench/passage_retrieval_zh.jsonl.gz",
    }
    assert written <= {each.file for each in FILES}


def test_every_reader_reads_the_made_up_texts(made_up: Path) -> None:
    documents = list(read_documents(made_up / "text"))
    assert {document.source for document in documents} >= {"coursera", "multi_news", "musique_s", "agent_miniswe"}
    assert all(any((made_up / "text").glob(pattern)) for pattern, _ in READERS)
    assert max(len(document.text.split()) for document in documents) > 8_192
    texts = read_texts(made_up / "text")
    assert len(texts.conversations) >= 20
    assert len(texts.passages) >= 100


@pytest.mark.parametrize(
    "name", ["mooncake_conversation_trace.jsonl.gz", "mooncake_synthetic_trace.jsonl.gz", "weka_claude_code.jsonl.gz"]
)
def test_the_simulator_reads_the_made_up_traces(made_up: Path, name: str) -> None:
    trace = load_trace(made_up / "traces" / name)
    trace.check()
    assert len(trace.nodes) > 1_000


def test_made_up_files_are_the_same_on_every_machine(made_up: Path, tmp_path: Path) -> None:
    write_made_up(tmp_path)
    for path in made_up.rglob("*.gz"):
        assert path.read_bytes() == (tmp_path / path.relative_to(made_up)).read_bytes()
    record = json.loads(gzip.decompress((made_up / "text" / "musique_s.json.gz").read_bytes()))[0]
    assert len(record["ctxs"]) == 10
