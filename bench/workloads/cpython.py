"""What CPython programs do: JSON, regular expressions, counting. `cpython.py [TIMES]`"""

import collections
import json
import re
import sys


def main(times):
    total = 0
    for time in range(times):
        records = [{"id": i, "name": f"name {i * 7919 % 1009}", "tags": [i % 3, i % 5]} for i in range(400)]
        text = json.dumps(records)
        names = re.findall(r'"name": "(\w+ \d*7\d*)"', text)
        counter = collections.Counter(names)
        back = json.loads(text)
        total += sum(count for _, count in counter.most_common(10)) + sum(sum(r["tags"]) for r in back) + time
    print(total)


main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
