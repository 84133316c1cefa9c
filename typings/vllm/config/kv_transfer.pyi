from typing import Any, Literal

class KVTransferConfig:
    kv_connector: str | None
    kv_role: Literal["kv_producer", "kv_consumer", "kv_both"] | None
    kv_connector_extra_config: dict[str, Any]
    kv_connector_module_path: str | None
    kv_load_failure_policy: Literal["recompute", "fail"]
    engine_id: str | None
    @property
    def is_kv_producer(self) -> bool: ...
    @property
    def is_kv_consumer(self) -> bool: ...
