"""The search for conditions of sizes in a kernel's Python, by running it without a machine."""
