from typing import Any

from vllm.config import ModelConfig

def cached_tokenizer_from_config(model_config: ModelConfig, **kwargs: Any) -> Any: ...
