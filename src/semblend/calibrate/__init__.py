"""Measured blends become the laws the gate foresees KL by. Called by ``semblend calibrate``, never while serving."""
