"""Pulls an artifact with the library `oras`: pull.py HOST REFERENCE FOLDER"""

import sys

import oras.client

host, reference, folder = sys.argv[1:]
client = oras.client.OrasClient(hostname=host, auth_backend="basic")
client.login(hostname=host, username="author", password="a password")
client.pull(target=f"{host}/{reference}", outdir=folder)
