"""Token ids from callers, checked once and converted to one array type."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError

TokenIds = Sequence[int] | NDArray[np.integer]
_LIMIT: Final = 1 << 31
MAX_ID_LENGTH: Final = 256


def as_tokens(token_ids: TokenIds) -> NDArray[np.uint32]:
    """A one-dimensional uint32 array of ids below 2**31: a copy, so that later changes by the caller have no effect."""
    if isinstance(token_ids, np.ndarray):
        if token_ids.ndim != 1:
            raise ContractError(f"token ids must have one dimension, not {token_ids.ndim}")
        if token_ids.dtype.kind not in "iu":
            raise ContractError(f"token ids must be integers, not {token_ids.dtype}")
        if token_ids.dtype.kind == "i" and len(token_ids) and int(token_ids.min()) < 0:
            raise ContractError("token ids must not be negative")
        wide = token_ids
    else:
        if not isinstance(token_ids, Sequence) or isinstance(token_ids, str | bytes | bytearray | memoryview):
            raise ContractError(f"token ids must be a sequence or an array of integers, not {type(token_ids).__name__}")
        try:
            wide = np.frombuffer(array("Q", token_ids), np.uint64)  # a third of the time numpy takes for a list
        except (TypeError, OverflowError) as error:
            raise ContractError(f"token ids must be integers of at least 0: {error}") from None
    if len(wide) and int(wide.max()) >= _LIMIT:
        raise ContractError("token ids must be below 2**31")
    return np.array(wide, np.uint32)


def as_count(value: int, name: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise ContractError(f"{name} must be an integer, not {value!r}") from None
    if count < 0:
        raise ContractError(f"{name} must not be negative")
    return count


def as_donor_id(donor_id: str) -> str:
    if not isinstance(donor_id, str) or not 0 < len(donor_id) <= MAX_ID_LENGTH:
        raise ContractError(f"a donor id must be a string of 1 to {MAX_ID_LENGTH} characters")
    return donor_id
