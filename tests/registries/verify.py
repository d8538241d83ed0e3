"""Verifies a signature with another library: verify.py PUBLIC_KEY BUNDLE MANIFEST_DIGEST"""

import base64
import json
import sys

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

key_file, bundle_file, digest = sys.argv[1:]
with open(key_file, "rb") as file:
    key = serialization.load_pem_public_key(file.read())
with open(bundle_file, "rb") as file:
    envelope = json.load(file)["dsseEnvelope"]
payload = base64.b64decode(envelope["payload"], validate=True)
kind = envelope["payloadType"].encode()
signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
subject = json.loads(payload)["subject"][0]["digest"]["sha256"]
assert digest == f"sha256:{subject}", (digest, subject)
