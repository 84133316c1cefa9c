"""Studies: a configuration in, cells of simulation run and kept, figures with intervals and a verdict out."""
