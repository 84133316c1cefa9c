from typing import Any

class ForwardBatch:
    forward_mode: Any
    batch_size: int
    input_ids: Any
    req_pool_indices: Any
    req_pool_indices_cpu: Any
    seq_lens: Any
    seq_lens_cpu: Any
    orig_seq_lens: Any
    seq_lens_sum: int
    out_cache_loc: Any
    positions: Any
    extend_num_tokens: int | None
    extend_seq_lens: Any
    extend_seq_lens_cpu: Any
    extend_prefix_lens: Any
    extend_prefix_lens_cpu: Any
    extend_start_loc: Any
    extend_logprob_start_lens_cpu: Any
    extend_input_logprob_token_ids_gpu: Any
    return_logprob: bool
    top_logprobs_nums: Any
    token_ids_logprobs: Any
    mm_inputs: Any
    lora_ids: Any
    rids: list[str] | None
    rids_int: Any
    global_num_token_non_padded_cpu: int
