"""A real SGLang server over HTTP: time to first token and fidelity of reuse, compared with cold prefill and an exact
hit.
"""
