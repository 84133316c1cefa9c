"""Miss-ratio curves: exact by many capacities, and by sampling whole prefix trees with the error shown."""
