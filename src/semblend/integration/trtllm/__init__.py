"""TensorRT-LLM, never run in the engine: two classes written to its published interface, which search and report."""
