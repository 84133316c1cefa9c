"""How close reuse is to cold prefill, for any selection policy at any budget, on a fixed set of real texts."""
