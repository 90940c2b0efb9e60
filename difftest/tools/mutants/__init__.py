"""Mutation testing: small changes of a kernel's source, and which of them its spec finds."""
