"""Which donors may be worth a look: the protocol of a directory, and the directories."""
