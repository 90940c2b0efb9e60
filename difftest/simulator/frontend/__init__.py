"""What a kernel imports: a folder for each dialect, and here what the dialects share."""
