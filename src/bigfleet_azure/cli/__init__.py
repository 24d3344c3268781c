"""The command line: the daemon's entry point and the tools beside it."""
