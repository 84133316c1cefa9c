"""A request in, the token ids that the engine will see out, or text keys where no tokenizer is to be had."""
