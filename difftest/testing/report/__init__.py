"""Reports of a session, and replays of its failures."""
