from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembench.manifest import (
    DonorPrompt,
    ManifestFormatError,
    WorkloadItem,
    decode_item,
    donor_id_for,
    encode_item,
    item_id_for,
    manifest_digest,
    read_manifest,
    segment_donor_id_for,
    write_manifest,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
METADATA = st.dictionaries(TEXT, VALUES, max_size=3)
DONORS = st.builds(DonorPrompt, donor_id=TEXT, text=TEXT, label=TEXT, metadata=METADATA)
ITEMS = st.builds(
    WorkloadItem,
    item_id=TEXT,
    dataset=TEXT,
    source_id=TEXT,
    transform=TEXT,
    recipient_prompt=TEXT,
    donor_prompts=st.lists(DONORS, max_size=3).map(tuple),
    input=TEXT,
    answers=st.lists(TEXT, max_size=3).map(tuple),
    negative_control=st.booleans(),
    metadata=METADATA,
)


@given(ITEMS)
def test_an_item_survives_its_line(item: WorkloadItem) -> None:
    line = encode_item(item)
    assert "\n" not in line
    assert decode_item(line, "here") == item


@given(ITEMS)
def test_a_line_has_exactly_the_promised_keys_sorted(item: WorkloadItem) -> None:
    record = json.loads(encode_item(item))
    assert list(record) == [
        "answers",
        "benchmark_version",
        "dataset",
        "donor_prompts",
        "input",
        "item_id",
        "metadata",
        "negative_control",
        "recipient_prompt",
        "source_id",
        "transform",
    ]
    assert record["benchmark_version"] == "sembench.manifest.v1"
    for donor in record["donor_prompts"]:
        assert list(donor) == ["donor_id", "label", "metadata", "text"]


def test_ids_follow_the_contract() -> None:
    def sha(*parts: str) -> str:
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]

    item_id = item_id_for("musique", "7", "rag_reorder")
    assert item_id == sha("musique", "7", "rag_reorder")
    assert donor_id_for(item_id) == sha(item_id, "donor")
    assert segment_donor_id_for(item_id, 3) == sha(item_id, "segment", "3")


MINIMAL = {"item_id": "a", "dataset": "d", "source_id": "s", "transform": "t", "recipient_prompt": "p"}


def test_the_five_required_keys_are_enough() -> None:
    item = decode_item(json.dumps(MINIMAL), "here")
    assert (item.answers, item.donor_prompts, item.input, item.negative_control) == ((), (), "", False)


@pytest.mark.parametrize("key", sorted(MINIMAL))
def test_each_required_key_is_required(key: str) -> None:
    record = {k: v for k, v in MINIMAL.items() if k != key}
    with pytest.raises(ManifestFormatError, match=f"here: missing {key}"):
        decode_item(json.dumps(record), "here")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"extra": 1}, "unknown keys extra"),
        ({"dataset": 3}, "'dataset' must be str, not int"),
        ({"answers": "yes"}, "'answers' must be list"),
        ({"answers": [1]}, "'answers' must be a list of strings"),
        ({"negative_control": 0}, "'negative_control' must be bool"),
        ({"metadata": []}, "'metadata' must be dict"),
        ({"benchmark_version": "sembench.manifest.v2"}, "benchmark_version 'sembench.manifest.v2'"),
        ({"donor_prompts": [{"donor_id": "x"}]}, r"donor_prompts\[0\]: missing text"),
        (
            {"donor_prompts": [{"donor_id": "x", "text": "t", "tenant": "b"}]},
            r"donor_prompts\[0\]: unknown keys tenant",
        ),
        ({"donor_prompts": ["x"]}, r"donor_prompts\[0\]: not a JSON object"),
    ],
)
def test_malformed_lines_are_refused_by_name(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ManifestFormatError, match=problem):
        decode_item(json.dumps({**MINIMAL, **change}), "here")


def test_the_message_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(MINIMAL) + "\n\n" + '{"item_id": 1}\n', encoding="utf-8")
    with pytest.raises(ManifestFormatError, match=r"m\.jsonl:3: missing dataset"):
        read_manifest(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ManifestFormatError, match=r"m\.jsonl:1: not JSON"):
        read_manifest(path)


def test_line_separators_inside_prompts_do_not_split_lines(tmp_path: Path) -> None:
    item = WorkloadItem(
        item_id="a", dataset="d", source_id="s", transform="t", recipient_prompt="one\u2028two\x85three\rfour\x0bfive"
    )
    path = tmp_path / "m.jsonl"
    assert write_manifest(path, [item, item]) == 2
    assert read_manifest(path) == [item, item]
    assert read_manifest(path, max_items=1) == [item]


def test_a_failed_write_leaves_the_old_manifest(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [WorkloadItem(item_id="a", dataset="d", source_id="s", transform="t", recipient_prompt="old")])
    with pytest.raises(ContractError, match="item b"):
        write_manifest(
            path,
            [
                WorkloadItem(
                    item_id="b", dataset="d", source_id="s", transform="t", recipient_prompt="lone \ud800 surrogate"
                )
            ],
        )
    assert read_manifest(path)[0].recipient_prompt == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.jsonl"]


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(
        path,
        [WorkloadItem(item_id="a", dataset="d", source_id="s", transform="t", recipient_prompt=string.ascii_letters)],
    )
    assert manifest_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
