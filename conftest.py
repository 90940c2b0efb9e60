"""For all tests: pytester, which tests the plugin by running pytest."""

pytest_plugins = ["pytester"]
