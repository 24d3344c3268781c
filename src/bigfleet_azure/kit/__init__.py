"""Small tools that know nothing of machines."""
