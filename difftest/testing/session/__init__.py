"""Options of a pytest session, and the collection of kernel tests."""
