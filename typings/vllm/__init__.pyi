# The surface of vLLM 0.32 that the adapter touches, and nothing else. tests/engines/vllm/test_stubs.py compares it
# with the installed engine: a failure there is the list of what moved.
__version__: str
