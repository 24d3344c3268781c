"""The ARM double: a fake Azure Resource Manager that speaks the wire to the unmodified SDK.

`double.ArmDouble` is the whole of it; README.md says what it knows from where.
"""
