"""Token ids as they come from callers, checked once at the door and turned into one array type."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.errors import ContractError

TokenIds = Sequence[int] | NDArray[np.integer]
_LIMIT: Final = 1 << 31


def as_tokens(token_ids: TokenIds) -> NDArray[np.uint32]:
    """A one-dimensional uint32 array of ids below 2**31. An array of that kind is taken as it is, without a copy."""
    if isinstance(token_ids, np.ndarray):
        if token_ids.ndim != 1:
            raise ContractError(f"token ids have one dimension, not {token_ids.ndim}")
        if token_ids.dtype.kind not in "iu":
            raise ContractError(f"token ids are whole numbers, not {token_ids.dtype}")
        if token_ids.dtype.kind == "i" and len(token_ids) and int(token_ids.min()) < 0:
            raise ContractError("token ids are not negative")
        wide = token_ids
    else:
        try:
            wide = np.frombuffer(array("Q", token_ids), np.uint64)  # a third of the time numpy takes for a list
        except (TypeError, OverflowError) as error:
            raise ContractError(f"token ids are whole numbers from 0 on: {error}") from None
    if len(wide) and int(wide.max()) >= _LIMIT:
        raise ContractError("token ids are below 2**31")
    return np.ascontiguousarray(wide, np.uint32)
