"""The ground floor: what semblend, sembench, semantic_kv and semgate share. It imports none of them."""
