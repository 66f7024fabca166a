"""Multiplies two whole numbers."""

import json
import sys

left, right = json.load(sys.stdin)["expression"].split("*")
print(int(left) * int(right))
