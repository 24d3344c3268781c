"""The pure core: facts, rules and decisions about machines.

Standard library only. Nothing here awaits, reads a clock, draws a random number, touches a file or
writes a log line: time, identifiers and limits are arguments.
"""
