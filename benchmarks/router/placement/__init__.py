"""The placement logic alone over 64 simulated replicas."""
