"""The command `semgate`."""
