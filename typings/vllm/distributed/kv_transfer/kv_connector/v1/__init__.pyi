from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1 as KVConnectorBase_V1
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole as KVConnectorRole
