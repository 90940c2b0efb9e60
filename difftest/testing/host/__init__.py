"""Runs of the user's code, and helpers that commands share."""
