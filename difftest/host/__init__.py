"""What hosts foreign code: scripts run in this process, the embedded modules, shipped sources."""
