"""Modules of the standard library that are loaded before a call.

A component holds what was imported when it was built and has no files to import more from. So what plugins use most is
imported here, with what it imports late. A plugin's own imports belong to the top of its modules.
"""

import importlib

from . import _random

MODULES = (
    "abc base64 binascii bisect calendar cmath codecs collections collections.abc colorsys configparser contextlib copy "
    "csv dataclasses datetime _strptime decimal difflib enum fnmatch fractions functools hashlib heapq hmac html "
    "html.entities html.parser io ipaddress itertools json linecache locale math numbers operator pathlib posixpath "
    "pprint random re reprlib secrets shlex statistics string struct tempfile textwrap time tokenize tomllib traceback "
    "types typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zlib zoneinfo "
    "encodings.ascii encodings.latin_1 encodings.utf_8 encodings.utf_8_sig encodings.utf_16 encodings.utf_32 "
    "encodings.cp1252 encodings.idna"
).split()

# First, because other modules keep what they find in `random`.
_random.install()

MISSING = []
for _name in MODULES:
    try:
        importlib.import_module(_name)
    except ImportError:
        MISSING.append(_name)
