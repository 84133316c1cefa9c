class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool
