"""What happens to a loaded claim before anybody reads it: it is checked, some of it is chosen, the rest is computed."""
