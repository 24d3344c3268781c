"""Speed and size of the daemon, measured from outside: a real process and a client beside it.

`make bench` prints the table; `python -m benchmarks --help` says what can be chosen. Nothing here
is a test: figures depend on the machine, so a row that misses its goal is printed, not failed.
"""
