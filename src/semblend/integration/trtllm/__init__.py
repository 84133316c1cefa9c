"""TensorRT-LLM, experimental: the two classes of ``kv_connector_config``. Built against its interface only."""
