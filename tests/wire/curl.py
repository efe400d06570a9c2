"""As much of curl as the guide uses, for machines that have none."""

from __future__ import annotations

import argparse
import sys
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("-s", action="store_true")
parser.add_argument("-H", dest="header", default="Accept: */*")
parser.add_argument("-d", dest="data")
given = parser.parse_args()
name, _, value = given.header.partition(": ")
data = None if given.data is None else given.data.encode()
with urllib.request.urlopen(urllib.request.Request(given.url, data, {name: value})) as answer:
    sys.stdout.write(answer.read().decode())
