"""One file per policy; ``registry`` names them."""
