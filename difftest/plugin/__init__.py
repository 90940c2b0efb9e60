"""The pytest plugin: hooks.py is its entry, and the other modules serve the hooks alone."""
