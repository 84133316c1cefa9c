"""Token ids as they come from callers, checked once at the door and turned into one array type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.errors import ContractError

TokenIds = Sequence[int] | NDArray[np.integer]
_LIMIT: Final = 1 << 31


def as_tokens(token_ids: TokenIds) -> NDArray[np.uint32]:
    """A one-dimensional uint32 array of ids below 2**31. An array of that kind is taken as it is, without a copy."""
    if isinstance(token_ids, np.ndarray) and token_ids.dtype == np.uint32 and token_ids.ndim == 1:
        tokens: NDArray[np.uint32] = np.ascontiguousarray(token_ids, np.uint32)
    else:
        try:
            wide = np.asarray(token_ids, dtype=np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ContractError(f"token ids are whole numbers: {error}") from None
        if wide.ndim != 1:
            raise ContractError(f"token ids have one dimension, not {wide.ndim}")
        if len(wide) and int(wide.min()) < 0:
            raise ContractError("token ids are not negative")
        if len(wide) and int(wide.max()) >= _LIMIT:
            raise ContractError("token ids are below 2**31")
        return wide.astype(np.uint32)
    if len(tokens) and int(tokens.max()) >= _LIMIT:
        raise ContractError("token ids are below 2**31")
    return tokens
