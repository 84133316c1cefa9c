"""What every engine adapter shares: request records, provenance, metrics, donors, namespaces, start-up."""
