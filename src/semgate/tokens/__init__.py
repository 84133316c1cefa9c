"""A request in, the token ids that the engine will see out; None without a usable tokenizer."""
