"""The simulator's own speed, its parity with libcachesim, and what policies are worth on real traces."""
