"""``kvmend estimate`` checked: planted prefix breaks, real traces, a million generated requests."""
