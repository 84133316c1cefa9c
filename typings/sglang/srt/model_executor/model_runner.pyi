from typing import Any

class ModelRunner:
    model: Any
    model_config: Any
    device: Any
    spec_algorithm: Any
    forward_stream: Any
    req_to_token_pool: Any
    kv_index_translator: Any
    max_running_requests: int
    def forward(
        self,
        forward_batch: Any,
        skip_attn_backend_init: bool | None = ...,
        pp_proxy_tensors: Any = ...,
        reinit_attn_backend: bool = ...,
        split_forward_count: int = ...,
    ) -> Any: ...
