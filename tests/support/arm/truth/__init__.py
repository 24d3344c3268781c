"""What the ARM double is held to: recorded Azure traffic and Microsoft's own API descriptions.

`data/` holds both, copied and unchanged. `schemas` checks single bodies, `shapes` compares answers
with recorded ones, `replay` sends the recorded requests again. Nothing here knows how the double
works inside; it may be pointed at anything that answers HTTP.
"""
