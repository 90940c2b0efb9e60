"""The harness: from a drawn size to a verdict and its report."""
