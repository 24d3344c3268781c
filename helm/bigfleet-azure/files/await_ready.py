"""The program of `helm test`: wait until the address in the first argument answers 200."""

import sys
import time
import urllib.request

SECONDS = 120.0

until = time.monotonic() + SECONDS
while True:
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
            print(answer.read().decode())
            break
    except OSError as error:
        if time.monotonic() > until:
            sys.exit(f"{sys.argv[1]} is not ready: {error}")
        time.sleep(1)
