from array import array

class RadixKey:
    token_ids: array[int]
    extra_key: str | None
    cache_salt: str | None
    def __init__(
        self,
        token_ids: array[int],
        extra_key: str | None = ...,
        is_bigram: bool = ...,
        limit: int | None = ...,
        cache_salt: str | None = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, idx: int | slice) -> RadixKey: ...
    def page_aligned(self, page_size: int) -> RadixKey: ...
