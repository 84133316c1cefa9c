"""A real vLLM server over HTTP: time to first token and fidelity of reuse, compared with cold prefill and the exact
cache.
"""
