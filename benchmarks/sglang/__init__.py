"""A real SGLang server over HTTP: time to first token and fidelity of reuse, beside cold prefill and an exact hit."""
