# The surface of SGLang 0.5.23 that the adapter touches, and nothing else. tests/engines/sglang/test_sglang_surface.py
# compares it with the installed engine: a failure there is the list of what moved.
__version__: str
