from typing import Any

def get_tokenizer(
    tokenizer_name: str,
    *args: Any,
    tokenizer_mode: str = ...,
    trust_remote_code: bool = ...,
    tokenizer_revision: str | None = ...,
    tokenizer_backend: str = ...,
    **kwargs: Any,
) -> Any: ...
