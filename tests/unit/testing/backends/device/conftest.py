from tests.unit.testing.backends.conftest import chip, nodes, site

__all__ = ["chip", "nodes", "site"]
