"""The peer of the validators: only read and parse every JSON file below a folder."""

import json
import os
import sys

for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                json.load(file)
