"""The daemon: its settings, and the one place where its parts are put together."""
