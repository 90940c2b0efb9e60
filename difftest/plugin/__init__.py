"""The pytest plugin: hooks.py is its entry, the other modules are what only the hooks need."""
