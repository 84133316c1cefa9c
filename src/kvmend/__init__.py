"""kvmend: one command for everything in this distribution; its libraries are imported under their own names."""
