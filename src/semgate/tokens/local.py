"""Token ids from the model's own files, in a small pool of threads: a request in, ids or ``None`` out.

Never delays a request for long: if too many are waiting, the result is ``None`` and the request is placed without.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semgate.http.request_body import Asked
from semgate.tokens.encoder import DEFAULT_REMEMBERED_BYTES, Encoder
from semgate.tokens.prompt import read_options, template_arguments
from semgate.tokens.template import ChatTemplate, TemplateRefusal, open_template

# For smaller bodies a hop to another thread costs more than the work.
INLINE_BYTES: Final = 2_048
DEFAULT_WAITING: Final = 256
DEFAULT_THREADS: Final = 2
MAX_BODY_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class TokenCounters:
    """``unreadable``: no prompt could be built (pictures, a template in the request, messages the template rejects)."""

    encoded: int = 0
    unreadable: int = 0
    too_large: int = 0
    too_many_waiting: int = 0


class LocalTokens:
    """``tokenizer.json`` and, for chats, the template in the same folder."""

    def __init__(
        self,
        folder: Path,
        *,
        threads: int = DEFAULT_THREADS,
        waiting: int = DEFAULT_WAITING,
        remembered_bytes: int = DEFAULT_REMEMBERED_BYTES,
    ) -> None:
        self.counters = TokenCounters()
        self._encoder = Encoder(folder / "tokenizer.json", remembered_bytes=remembered_bytes)
        self._template: ChatTemplate | None = open_template(folder)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tokenize")
        self._max_waiting = waiting
        self._waiting = 0

    async def tokens_of(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        if asked.prompt_tokens is not None:
            return given_tokens(asked.prompt_tokens)
        if len(body) > MAX_BODY_BYTES:
            self.counters.too_large += 1
            return None
        if len(body) <= INLINE_BYTES:
            tokens = self.encode(asked, body)
        elif self._waiting >= self._max_waiting:
            self.counters.too_many_waiting += 1
            return None
        else:
            tokens = await self._in_pool(asked, body)
        if tokens is None:
            self.counters.unreadable += 1
        else:
            self.counters.encoded += 1
        return tokens

    async def _in_pool(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self.encode, asked, body)
        finally:
            self._waiting -= 1

    def encode(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        """Runs in the calling thread."""
        options = read_options(body)
        if options is None or asked.media_parts:
            return None
        if asked.messages is None:
            if asked.prompt_text is None:
                return None
            return self._encoder.encode(asked.prompt_text, add_special_tokens=options.add_special_tokens is not False)
        if self._template is None:
            return None
        try:
            text = self._template.render(asked.messages, template_arguments(options))
        except TemplateRefusal:
            return None
        return self._encoder.encode(text, add_special_tokens=options.add_special_tokens is True)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def given_tokens(ids: tuple[int, ...]) -> NDArray[np.uint32] | None:
    """Token ids that the client sent; ``None`` if they cannot be token ids."""
    try:
        return np.array(ids, np.uint32)
    except (OverflowError, ValueError, TypeError):
        return None
