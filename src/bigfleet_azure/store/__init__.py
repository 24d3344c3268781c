"""Durable state: what is committed before anybody hears of it."""
