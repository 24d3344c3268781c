"""Substrates: where machines really are."""
