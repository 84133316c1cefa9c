"""Where the bytes of fleet donors are: the protocol of a carrier, and the carriers."""
