"""Many points of one kernel test: swept on processes and machines, and tuned."""
