"""The install page against what is here."""
