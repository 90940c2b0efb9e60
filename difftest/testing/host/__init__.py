"""What hosts foreign code, and what the commands of several rooms share."""
