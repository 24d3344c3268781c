"""A small honest Azure inside the process: demos, trials of a BigFleet set-up, certification."""
