"""Sources of the replica list: configured (``static``) or watched (``kubernetes``)."""
