"""What people look at, and what proves their tests: pages, replays, planted bugs."""
