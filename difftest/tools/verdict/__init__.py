"""The verdict on one kernel by one spec: ``difftest verdict``."""
