from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import (
    CONTRACT_VERSION,
    Event,
    EventFormatError,
    EventLine,
    Materialized,
    decode_line,
    encode_line,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
COUNT, AMOUNT = st.integers(0, 2**53), st.floats(0, 1e300)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
    "Count": COUNT,
    "Count | None": st.none() | COUNT,
    "Amount": AMOUNT,
    "Amount | None": st.none() | AMOUNT,
}
EVENTS = st.one_of(
    [
        st.builds(cls, **{name: FIELDS[str(hint)] for name, hint in cls.__annotations__.items()})
        for cls in get_args(Event)
    ]
)
LINES = st.builds(EventLine, event=EVENTS, engine=TEXT, sequence=COUNT, timestamp_ms=AMOUNT)


@given(LINES)
def test_a_line_comes_back_as_it_was(line: EventLine) -> None:
    encoded = encode_line(line)
    assert "\n" not in encoded
    assert decode_line(encoded) == line


@given(st.one_of(TEXT, st.recursive(st.none() | st.booleans() | FINITE | TEXT, st.lists).map(json.dumps)))
def test_no_text_breaks_the_decoder(text: str) -> None:
    with pytest.raises(EventFormatError):
        decode_line(text)


def record(**changes: Any) -> str:
    line = EventLine(Materialized("r", ("d",), 10, 2, 1), "vllm", 1, 2.0)
    return json.dumps(json.loads(encode_line(line)) | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contract": "semblend.event.v2"}, "contract"),
        ({"contract": None}, "contract"),
        ({"event": "materialised"}, "unknown event kind"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"reused_tokens": "10"}, "reused_tokens"),
        ({"reused_tokens": True}, "reused_tokens"),
        ({"reused_tokens": None}, "reused_tokens"),
        ({"donor_ids": [1]}, "donor_ids"),
        ({"donor_ids": "d"}, "donor_ids"),
        ({"sequence": 1.5}, "sequence"),
        ({"reused_tokens": -1}, "reused_tokens"),
        ({"load_ms": -0.5}, "load_ms"),
        ({"timestamp_ms": 1e301}, "timestamp_ms"),
        ({"load_ms": 10**400}, "out of range - at `\\$.event.load_ms`"),
    ],
)
def test_what_does_not_follow_the_contract_is_refused(changes: dict[str, Any], message: str) -> None:
    assert decode_line(record()).engine == "vllm"
    with pytest.raises(EventFormatError, match=message):
        decode_line(record(**changes))


def test_a_missing_required_field_is_refused() -> None:
    parts = json.loads(record())
    del parts["reused_tokens"]
    with pytest.raises(EventFormatError, match="reused_tokens"):
        decode_line(json.dumps(parts))


def test_unmeasured_is_null_and_not_zero() -> None:
    assert json.loads(record())["load_ms"] is None
    assert json.loads(record())["contract"] == CONTRACT_VERSION


def test_a_line_is_one_line_for_every_reader() -> None:
    line = EventLine(Materialized("r\u2028\x85\ud800", ("d",), 1, 0, 1), "vllm", 1, 2.0)
    encoded = encode_line(line)
    assert len(encoded.splitlines()) == 1
    assert encoded.isascii()
    assert decode_line(encoded) == line


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(EventFormatError, match="not a number"):
        decode_line(record().replace('"load_ms": null', f'"load_ms": {number}'))
