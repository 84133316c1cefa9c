"""The vLLM adapter. Importing this package imports no engine; vLLM loads ``connector_v1`` and ``worker`` by path."""
