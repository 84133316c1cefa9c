"""``kvmend bench run-load`` beside other load clients: do they read the same off one server, and how fast are they."""
