"""The current dialect, ``import nki`` (NKI 0.3 on): names, syntax and conventions."""
