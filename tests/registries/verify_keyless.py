"""Verifies a bundle with sigstore's Python library: verify_keyless.py FOLDER DIGEST IDENTITY ISSUER"""

import json
import sys
from pathlib import Path

from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity

folder, digest, identity, issuer = sys.argv[1:]
root = TrustedRoot.from_file(f"{folder}/trusted_root.json")
bundle = Bundle.from_json(Path(folder, "bundle.json").read_text())
verifier = Verifier(trusted_root=root)
_, payload = verifier.verify_dsse(bundle, Identity(identity=identity, issuer=issuer))
subject = json.loads(payload)["subject"][0]["digest"]["sha256"]
assert digest == f"sha256:{subject}", (digest, subject)
