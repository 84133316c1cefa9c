"""One result of a page with its rows, pairs, verdict and noise floor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sembase.errors import ConfigurationError, ContractError
from sembench.flips import floor_arms
from sembench.gates.answer_gates import FLOOR_SETTINGS
from sembench.gates.calibration import NoiseFloor, read_noise_floor
from sembench.gates.integrity import integrity_failures
from sembench.gates.other_run import OtherRun, mismatches
from sembench.metrics.rows import ArmRow, RequestRow
from sembench.report.pairs import PairSet, pairs_of
from sembench.result import read_result


@dataclass(frozen=True, slots=True)
class Subject:
    """``prefix`` makes HTML ids unique on a page of several results. ``integrity`` lists contradictions to the rows.

    ``floor`` has the arms of a second cold run by item.
    """

    name: str
    prefix: str
    result: Mapping[str, Any]
    rows: Sequence[RequestRow]
    pairs: PairSet
    integrity: Sequence[str]
    verdict: Mapping[str, Any] | None = None
    noise_floor: NoiseFloor = field(default_factory=NoiseFloor)
    floor: Mapping[str, ArmRow] | None = None

    @property
    def aggregate(self) -> Mapping[str, Any]:
        aggregate: Mapping[str, Any] = self.result["aggregate"]
        return aggregate

    @property
    def paired(self) -> Mapping[str, Any]:
        paired = self.result["paired"]
        return paired if isinstance(paired, dict) else {}

    @property
    def evidence(self) -> str:
        return str(self.result["run"].get("evidence"))


def name_of(path: Path) -> str:
    """A file called ``result.json`` is named after its folder, to distinguish several of them."""
    path = path.resolve()
    return path.parent.name if path.stem == "result" and path.parent.name else path.name


def read_subjects(
    paths: Sequence[Path],
    verdicts: Sequence[Path] = (),
    noise_floor: Path | None = None,
    floor_result: Path | None = None,
) -> tuple[Subject, ...]:
    """``floor_result`` is a second cold run of one manifest; it must match every result of the page."""
    floor = read_noise_floor(noise_floor) if noise_floor is not None else NoiseFloor()
    again = OtherRun(*read_result(floor_result)) if floor_result is not None else None
    judged = _verdicts_by_result(verdicts, paths)
    subjects = []
    for number, path in enumerate(paths, start=1):
        result, rows = read_result(path)
        if again is not None and (different := next(mismatches(result, again, "floor", FLOOR_SETTINGS), None)):
            raise ContractError(f"--floor-result {floor_result}: {different} ({path})")
        prefix = f"r{number}-" if len(paths) > 1 else ""
        size = result["config"].get("block_size") if isinstance(result["config"], dict) else None
        block_size = size if isinstance(size, int) else None
        failures = tuple(integrity_failures(result, rows))
        subjects.append(
            Subject(
                name_of(path),
                prefix,
                result,
                rows,
                pairs_of(rows, block_size),
                failures,
                judged.get(path.resolve()),
                floor,
                None if again is None else floor_arms(again.rows),
            )
        )
    return tuple(subjects)


def _verdicts_by_result(verdicts: Sequence[Path], results: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    """A verdict belongs to the result with the SHA-256 it records; file names do not matter."""
    found: dict[Path, Mapping[str, Any]] = {}
    digests = {result.resolve(): hashlib.sha256(result.read_bytes()).hexdigest() for result in results}
    for path in verdicts:
        verdict = read_object(path, "a verdict of assert-result-gates")
        named = verdict.get("result")
        if not isinstance(named, str) or not isinstance(verdict.get("passed"), bool):
            raise ContractError(f"{path}: not a verdict of assert-result-gates (it has the keys 'result' and 'passed')")
        judged = verdict.get("result_sha256")
        if not isinstance(judged, str):
            raise ContractError(f"{path}: has no result_sha256; run assert-result-gates on '{named}' again")
        matches = [result for result, digest in digests.items() if digest == judged]
        if not matches:
            raise ConfigurationError(
                f"--gates {path}: judged '{named}', but its content matches none of the results of this page; "
                "run assert-result-gates on the result again"
            )
        found |= dict.fromkeys(matches, verdict)
    return found


def read_object(path: Path, what: str) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ContractError(f"{path}: not {what}")
    return record
