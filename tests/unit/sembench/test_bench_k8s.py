"""The evidence commands as a user runs them: with a stand-in kubectl on the PATH and, where there is one, the real
kubectl against a small API server of our own."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, SemBlendError
from sembench.cli import collect_k8s_engine_events, summarize_engine_events
from sembench.engine_events.kubectl import PodLog

FAKE_KUBECTL = Path(__file__).parents[2] / "fakes" / "kubectl"
LOG = Path(__file__).parent / "golden" / "engine_events" / "vllm.log"
EXPECTED = json.loads((LOG.parent / "vllm.summary.json").read_text(encoding="utf-8"))
PRINTED = {name: value for name, value in EXPECTED.items() if name != "events"}
REAL = shutil.which("kubectl")


class Bench:
    """A directory with two outputs, and the command that fills them."""

    def __init__(self, directory: Path) -> None:
        self.log, self.summary = directory / "out" / "engine.log", directory / "out" / "summary.json"
        self.calls = directory / "calls.jsonl"

    def run(self, *more: str, pod: str = "vllm-0") -> int:
        parser = argparse.ArgumentParser()
        collect_k8s_engine_events.add_arguments(parser)
        outputs = ["--output-log", str(self.log), "--output-summary", str(self.summary)]
        options = parser.parse_args(["--engine", "vllm", "--namespace", "serving", "--pod", pod, *outputs, *more])
        return int(collect_k8s_engine_events.execute(options))

    def call(self) -> dict[str, Any]:
        (text,) = self.calls.read_text().splitlines()
        record: dict[str, Any] = json.loads(text)
        return record

    def outputs(self) -> list[str]:
        return sorted(path.name for path in self.log.parent.glob("*")) if self.log.parent.exists() else []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    programs = tmp_path / "bin"
    programs.mkdir()
    script = FAKE_KUBECTL.read_text(encoding="utf-8").replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1)
    (programs / "kubectl").write_text(script, encoding="utf-8")
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("FAKE_KUBECTL_LOG", str(LOG))
    made = Bench(tmp_path)
    monkeypatch.setenv("FAKE_KUBECTL_CALLS", str(made.calls))
    return made


def test_the_log_is_kept_byte_by_byte_and_summarized(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("--container", "engine", "--since-time", "2026-01-31T09:30:00Z") == 0
    assert bench.log.read_bytes() == LOG.read_bytes()
    assert json.loads(bench.summary.read_text()) == EXPECTED
    printed = capsys.readouterr()
    assert json.loads(printed.out) == PRINTED
    assert "35 lines: 15 of the vllm dialect, 1 damaged" in printed.err
    assert bench.call() == {
        "arguments": [
            "logs",
            "--namespace=serving",
            "--tail=2000",
            "--container=engine",
            "--since-time=2026-01-31T09:30:00Z",
            "vllm-0",
        ],
        "stdin": "",
    }


def test_a_tail_that_was_filled_is_reported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("--tail", "3", "--since", "1h30m") == 0
    assert bench.log.read_bytes() == b"".join(LOG.read_bytes().splitlines(keepends=True)[-3:])
    assert "earlier ones may be missing" in capsys.readouterr().err
    assert bench.run("--tail", "-1") == 0
    assert "earlier ones may be missing" not in capsys.readouterr().err


def test_kubectl_cannot_ask_the_terminal(bench: Bench) -> None:
    """Without credentials it asks for a user name, and an unattended run would wait for ever."""
    reader, writer = os.pipe()
    os.write(writer, b"typed\n")
    os.close(writer)
    terminal = os.dup(0)
    os.dup2(reader, 0)
    try:
        bench.run()
    finally:
        os.dup2(terminal, 0)
        os.close(terminal)
        os.close(reader)
    assert bench.call()["stdin"] == ""


def test_no_kubectl_says_what_to_do_instead(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"kubectl is not on the PATH.*summarize-engine-events"):
        bench.run()
    assert bench.outputs() == []


def test_a_failure_is_reported_in_kubectls_own_words_and_leaves_no_file(bench: Bench) -> None:
    with pytest.raises(OSError, match=r'exit 1\): Error from server \(NotFound\): pods "missing" not found'):
        bench.run(pod="missing")
    with pytest.raises(OSError, match="unexpected EOF"):
        bench.run(pod="half")
    assert bench.outputs() == []


def test_a_failure_keeps_the_files_of_the_last_success(bench: Bench) -> None:
    bench.run()
    before = bench.log.read_bytes(), bench.summary.read_bytes()
    with pytest.raises(OSError, match="NotFound"):
        bench.run(pod="missing")
    assert (bench.log.read_bytes(), bench.summary.read_bytes()) == before


def test_a_slow_kubectl_is_ended(bench: Bench) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.5 s: waiting for the API server.*--timeout-seconds"):
        bench.run("--timeout-seconds", "0.5", pod="slow")
    assert bench.outputs() == []


def test_outputs_that_cannot_be_are_refused_before_kubectl_runs(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="same file"):
        bench.run("--output-log", str(bench.summary))
    with pytest.raises(ConfigurationError, match="is a directory"):
        bench.run("--output-log", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        bench.run("--output-summary", str(tmp_path / "file" / "summary.json"))
    assert not bench.calls.exists()


# -- what reaches kubectl --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pod", "--kubeconfig=/etc/passwd"),
        ("pod", "-f"),
        ("pod", "a b"),
        ("pod", "a;rm"),
        ("pod", "a/b"),
        ("pod", "A"),
        ("pod", ""),
        ("pod", "a..b"),
        ("pod", "a\n"),
        ("pod", "a" * 64),
        ("pod", ".".join(["a" * 60] * 5)),
        ("namespace", "a.b"),
        ("namespace", "-n"),
        ("namespace", "ns\x00"),
        ("container", "$(id)"),
        ("container", "c-"),
        ("since", "5"),
        ("since", "-5m"),
        ("since", "0s"),
        ("since", "5m --all-containers"),
        ("since", "1d"),
        ("since_time", "yesterday"),
        ("since_time", "2026-01-31"),
        ("since_time", "2026-01-31T09:30:00"),
        ("since_time", "2026-02-31T09:30:00Z"),
        ("since_time", "2026-01-31T09:30:00Z\n"),
        ("tail", -2),
    ],
)
def test_what_is_no_name_time_or_count_is_refused(field: str, value: str | int) -> None:
    given_values: dict[str, Any] = {"namespace": "n", "pod": "p", field: value}
    with pytest.raises(ConfigurationError, match=f"--{field.replace('_', '-')}"):
        PodLog(**given_values)


def test_since_and_since_time_exclude_each_other(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="mutually exclusive"):
        PodLog("n", "p", since="5m", since_time="2026-01-31T09:30:00Z")
    with pytest.raises(SystemExit) as refused:
        bench.run("--since", "5m", "--since-time", "2026-01-31T09:30:00Z")
    assert refused.value.code == 2


TEXT = st.one_of(
    st.text(max_size=30), st.from_regex(r"[a-z0-9.-]{1,20}"), st.sampled_from(["5m", "2026-01-31T09:30:00Z"])
)


@given(TEXT, TEXT, st.one_of(st.none(), TEXT), st.one_of(st.none(), TEXT), st.one_of(st.none(), TEXT), st.integers())
def test_no_value_ever_becomes_a_flag(
    namespace: str, pod: str, container: str | None, since: str | None, since_time: str | None, tail: int
) -> None:
    try:
        arguments = PodLog(namespace, pod, container, tail, since, since_time).arguments()
    except SemBlendError:
        return
    command, *flags, last = arguments
    assert command == "logs"
    assert last == pod
    assert not last.startswith("-")
    known = {
        "namespace": namespace,
        "tail": str(tail),
        "container": container,
        "since": since,
        "since-time": since_time,
    }
    assert flags == [
        f"--{name}={known[name]}"
        for name in ("namespace", "tail", "container", "since", "since-time")
        if known[name] is not None
    ]
    assert not any(character.isspace() or character == "\x00" for argument in arguments for character in argument)


# -- the real kubectl ------------------------------------------------------------------------------------------------


_DISCOVERY: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.4"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}],
    },
}


class _Api(BaseHTTPRequestHandler):
    """As much of the Kubernetes API as ``kubectl logs`` asks for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = urlsplit(self.path).path
        if path.endswith("/pods/vllm-0/log"):
            self._answer(200, "text/plain", LOG.read_bytes())
        elif path.endswith("/pods/vllm-0"):
            pod = {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "vllm-0", "namespace": "serving"},
                "spec": {"containers": [{"name": "engine"}, {"name": "sidecar"}]},
            }
            self._answer(200, "application/json", json.dumps(pod).encode())
        elif path in _DISCOVERY:
            self._answer(200, "application/json", json.dumps(_DISCOVERY[path]).encode())
        else:
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
                "message": "there is no such thing",
            }
            self._answer(404, "application/json", json.dumps(status).encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Quiet: the paths are kept in ``asked``."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The real kubectl, pointed at an API server of ours and at nothing of the user's."""
    if REAL is None:
        pytest.skip("no kubectl on the PATH; Debian has one in the package kubernetes-client")
    asked: list[str] = []
    _Api.asked = asked
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _point_kubectl_at(server.server_address[1], tmp_path, monkeypatch)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _point_kubectl_at(port: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    (home / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(home / "kubeconfig"))
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def test_the_real_kubectl_accepts_our_arguments(cluster: list[str], tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run("--container", "engine", "--tail", "77", "--since-time", "2026-01-31T09:30:00Z") == 0
    assert bench.log.read_bytes() == LOG.read_bytes()
    assert json.loads(bench.summary.read_text()) == EXPECTED
    (asked,) = [path for path in cluster if "/log?" in path]
    assert urlsplit(asked).path == "/api/v1/namespaces/serving/pods/vllm-0/log"
    assert parse_qs(urlsplit(asked).query) == {
        "container": ["engine"],
        "tailLines": ["77"],
        "sinceTime": ["2026-01-31T09:30:00Z"],
    }
    assert bench.run("--container", "sidecar", "--tail", "-1", "--since", "1h30m") == 0
    (_, asked) = [path for path in cluster if "/log?" in path]
    assert parse_qs(urlsplit(asked).query) == {"container": ["sidecar"], "sinceSeconds": ["5400"]}


@pytest.mark.parametrize("since", ["90s", "1.5h", "2h45m", "1500ms"])
def test_the_real_kubectl_takes_the_durations_we_take(cluster: list[str], tmp_path: Path, since: str) -> None:
    assert Bench(tmp_path).run("--container", "engine", "--since", since) == 0
    assert any("sinceSeconds=" in path for path in cluster)


def test_the_real_kubectls_refusals_are_shown(
    cluster: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match=r"kubectl logs failed \(exit 1\): .*(NotFound|not found|no such thing)"):
        Bench(tmp_path).run(pod="other")
    _point_kubectl_at(1, tmp_path, monkeypatch)
    with pytest.raises(OSError, match="refused"):
        Bench(tmp_path).run()
    assert Bench(tmp_path).outputs() == []


# -- summarize-engine-events -----------------------------------------------------------------------------------------


def summarize_command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    summarize_engine_events.add_arguments(parser)
    return int(summarize_engine_events.execute(parser.parse_args(arguments)))


def test_a_file_becomes_a_summary_file_and_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "summary.json"
    assert summarize_command("--engine", "vllm", "--input", str(LOG), "--output", str(output)) == 0
    printed = capsys.readouterr()
    assert json.loads(output.read_text()) == EXPECTED
    assert json.loads(printed.out) == PRINTED
    assert "1 damaged" in printed.err


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with LOG.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert summarize_command("--engine", "vllm", "--input", "-") == 0
    assert json.loads(capsys.readouterr().out) == EXPECTED


def test_the_wrong_log_is_suspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "any.log").write_text("nothing of interest\n")
    assert summarize_command("--engine", "sglang", "--input", str(tmp_path / "any.log")) == 0
    assert "no line was recognized" in capsys.readouterr().err


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    copy = tmp_path / "engine.log"
    copy.write_bytes(LOG.read_bytes())
    (tmp_path / "link.log").symlink_to(copy)
    for output in (copy, tmp_path / "link.log"):
        with pytest.raises(ConfigurationError, match="--input"):
            summarize_command("--engine", "vllm", "--input", str(copy), "--output", str(output))
    assert copy.read_bytes() == LOG.read_bytes()


def test_half_a_character_in_an_id_can_still_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "audit.jsonl").write_text('{"event": "lookup", "found": true, "request_id": "\\ud800"}\n')
    output = tmp_path / "summary.json"
    assert (
        summarize_command("--engine", "trtllm", "--input", str(tmp_path / "audit.jsonl"), "--output", str(output)) == 0
    )
    assert json.loads(output.read_text())["semantic_hits"] == 1
