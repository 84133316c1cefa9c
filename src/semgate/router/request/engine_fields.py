"""Members of a request body that steer engines, such as the host from which KV is read. Clients may not send them.

In: a body; out: the name of such a member, or None. Names are compared as parsed, so that an escape hides nothing. The
hints of this project's own connector (``kv_transfer_params.semblend`` alone) pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from semgate.router.request.members import members_of

NAMES: Final = (
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "data_parallel_rank",
    "disagg_prefill_dp_rank",
    "routed_dp_rank",
)
# vLLM adds these to the sampling parameters, where a connector looks for its own.
_NESTED: Final = ("vllm_xargs", "extra_args")
_OWN: Final = "semblend"
_MAYBE: Final = tuple(name.encode() for name in NAMES)
_ESCAPED: Final = re.compile(rb"\\u00[5-7]")  # may write a character of a name
UNREADABLE: Final = "unreadable"


def engine_field(body: bytes) -> str | None:
    """`UNREADABLE` for a body that may have such a member and cannot be read: an engine, or a front that skips the
    members it does not know, might read it."""
    is_escaped = b"\\u00" in body and _ESCAPED.search(body) is not None
    if not is_escaped and not any(name in body for name in _MAYBE):
        return None
    try:
        return _found_in(members_of(body))
    except (ValueError, RecursionError):
        return UNREADABLE


def _found_in(members: Any) -> str | None:
    if not isinstance(members, Mapping):
        return None
    for name in NAMES:
        if name in members and not _is_harmless(name, _value(members[name])):
            return name
    for outer in _NESTED:
        inner = _value(members.get(outer))
        if isinstance(inner, Mapping) and (found := next((name for name in NAMES if name in inner), None)):
            return f"{outer}.{found}"
    return None


def _is_harmless(name: str, value: Any) -> bool:
    if value is None:
        return True
    return name == NAMES[0] and isinstance(value, Mapping) and set(value) <= {_OWN}


def _value(member: Any) -> Any:
    return json.loads(bytes(member)) if isinstance(member, msgspec.Raw) else member
