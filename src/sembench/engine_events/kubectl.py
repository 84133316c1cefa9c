"""A pod's log through ``kubectl logs``, into a stream. No user input can become a flag or reach a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Final

from sembase.errors import ConfigurationError

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_MAX_NAME_CHARACTERS: Final = 253
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|s|m|h)){1,6}")
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_OWN_LOG: Final = re.compile(r"[EIW][0-9]{4} [0-9]{2}:")  # E1115 08:40:23.110580   22274 memcache.go:265] ...
_READ_BYTES: Final = 1 << 16
_SHOWN_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class PodLog:
    """Which log, and how much of it. ``tail`` -1 is all of it; ``since`` and ``since_time`` are mutually exclusive."""

    namespace: str
    pod: str
    container: str | None = None
    tail: int = 2000
    since: str | None = None
    since_time: str | None = None

    def __post_init__(self) -> None:
        _require("--namespace", self.namespace, bool(_LABEL.fullmatch(self.namespace)), "a Kubernetes name")
        _require("--pod", self.pod, _is_pod_name(self.pod), "a pod's name")
        if self.container is not None:
            _require("--container", self.container, bool(_LABEL.fullmatch(self.container)), "a Kubernetes name")
        if self.tail < -1:
            raise ConfigurationError(f"--tail {self.tail}: give a number of lines, or -1 for all")
        if self.since is not None and self.since_time is not None:
            raise ConfigurationError("--since and --since-time are mutually exclusive")
        if self.since is not None:
            _require("--since", self.since, _is_duration(self.since), "a duration such as 90s, 5m or 1h30m")
        if self.since_time is not None:
            _require(
                "--since-time", self.since_time, _is_moment(self.since_time), "a time such as 2026-01-31T09:30:00Z"
            )

    def arguments(self) -> list[str]:
        """For ``kubectl``. Every value is joined to its flag with ``=``; a valid pod name cannot start with a dash."""
        optional = {"container": self.container, "since": self.since, "since-time": self.since_time}
        given = [f"--{name}={value}" for name, value in optional.items() if value is not None]
        return ["logs", f"--namespace={self.namespace}", f"--tail={self.tail}", *given, self.pod]


def fetch(log: PodLog, into: BinaryIO, *, timeout_seconds: float) -> None:
    """Raises an ``OSError`` that says what to do: kubectl not found, failed (with its own message), or timed out."""
    program = shutil.which("kubectl")
    if program is None:
        raise FileNotFoundError(
            "kubectl is not on the PATH. Install it, or copy the log to a file and read it with: "
            "kvmend bench summarize-engine-events --engine ENGINE --input FILE"
        )
    with tempfile.TemporaryFile() as stderr:
        try:
            done = subprocess.run(
                [program, *log.arguments()],
                stdin=subprocess.DEVNULL,  # kubectl could prompt for a password
                stdout=into,
                stderr=stderr,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"kubectl did not return the log of pod {log.pod} within {timeout_seconds:g} s{_reason_in(stderr)}. "
                "Request less (--tail, --since), or wait longer (--timeout-seconds)"
            ) from None
        if done.returncode != 0:
            raise ChildProcessError(f"kubectl logs failed (exit {done.returncode}){_reason_in(stderr)}")


def _reason_in(stderr: BinaryIO) -> str:
    """The end of kubectl's error output, which holds the reason; its log lines only if there is nothing else."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _READ_BYTES))
    lines = stderr.read(_READ_BYTES).decode("utf-8", errors="replace").strip().splitlines()
    reasons = [line for line in lines if not _OWN_LOG.match(line)] or lines
    text = "\n".join(reasons)[-_SHOWN_CHARACTERS:]
    return f": {text}" if text else ""


def _require(flag: str, value: str, holds: bool, wanted: str) -> None:
    if not holds:
        raise ConfigurationError(f"{flag} {value!r}: not {wanted}")


def _is_pod_name(name: str) -> bool:
    return len(name) <= _MAX_NAME_CHARACTERS and all(_LABEL.fullmatch(part) for part in name.split("."))


def _is_duration(text: str) -> bool:
    """Greater than zero: kubectl refuses 0."""
    return bool(_DURATION.fullmatch(text)) and any(digit in text for digit in "123456789")


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text[:19])
    except ValueError:
        return False
    return True
