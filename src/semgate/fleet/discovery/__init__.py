"""Where the list of replicas comes from: written down (``static``) or watched (``kubernetes``)."""
