"""LongBench v1 and v2, from local files (``--data-dir``) or else from the hub through the datasets library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sembase.errors import MissingDependencyError
from sembase.registry import load_target
from sembench.workload.readers.files import data_files
from sembench.workload.readers.longbench import from_longbench_v1, from_longbench_v2
from sembench.workload.record import SourceRecord
from sembench.workload.sources.base import SourceRequest
from sembench.workload.sources.local import choose_file, require_data_dir

V1_DATASETS: Final = (
    "qasper",
    "multifieldqa_en",
    "hotpotqa",
    "2wikimqa",
    "musique",
    "gov_report",
    "qmsum",
    "multi_news",
    "passage_retrieval_en",
    "lcc",
    "repobench-p",
)
V2_FILES: Final = ("data", "longbench_v2", "longbench-v2", "LongBench-v2")

Rows = Iterable[Mapping[str, Any]]


def read_longbench_v1(request: SourceRequest) -> list[SourceRecord]:
    records: list[SourceRecord] = []
    for dataset in request.datasets or V1_DATASETS:
        records += request.limited(
            from_longbench_v1(row, dataset, i) for i, row in enumerate(_v1_rows(request, dataset))
        )
    return records


def read_longbench_v2(request: SourceRequest) -> list[SourceRecord]:
    """One file for all domains; ``--datasets`` names domains, and each domain is a dataset of its own."""
    by_domain: dict[str, list[SourceRecord]] = {}
    for index, row in enumerate(_v2_rows(request)):
        record = from_longbench_v2(row, index)
        if not request.datasets or record.dataset in request.datasets:
            by_domain.setdefault(record.dataset, []).append(record)
    return [record for records in by_domain.values() for record in request.limited(records)]


def _v1_rows(request: SourceRequest, dataset: str) -> Rows:
    if request.data_dir is None:
        return _from_hub("THUDM/LongBench", dataset)
    directory = require_data_dir(request, "longbench-v1")
    return choose_file(data_files(directory), dataset, directory).rows()


def _v2_rows(request: SourceRequest) -> Iterator[Mapping[str, Any]]:
    if request.data_dir is None:
        yield from _from_hub("THUDM/LongBench-v2", None)
        return
    directory = require_data_dir(request, "longbench-v2")
    files = data_files(directory)
    known = [file for file in files if file.name in V2_FILES]
    yield from (known[0] if known else choose_file(files, V2_FILES[0], directory)).rows()


def _from_hub(repository: str, subset: str | None) -> Rows:
    try:
        load_rows = load_target("sembench.workload.sources.hub:load_rows")
    except ModuleNotFoundError:
        purpose = (
            "reading LongBench without --data-dir (or pass --data-dir DIR with its .jsonl files: "
            "then neither the hub nor the package is needed; the package needs a reachable hub)"
        )
        raise MissingDependencyError("datasets", "longbench", purpose) from None
    rows: Rows = load_rows(repository, subset)
    return rows
