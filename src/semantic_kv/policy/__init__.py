"""What decides: admission (may this block enter?) and eviction (which block leaves?), two separate axes."""
