"""NKI kernels, exactly as they would run on a NeuronCore: one folder a dialect."""
