"""One kernel, one spec, one object that says what came of it: ``difftest verdict``."""
