// Verifies a bundle of a manifest with the library of sigstore's own clients:
//
//     node verify.mjs FOLDER DIGEST IDENTITY ISSUER

import { readFileSync } from 'node:fs';
import { bundleFromJSON } from '@sigstore/bundle';
import { TrustedRoot } from '@sigstore/protobuf-specs';
import { toSignedEntity, toTrustMaterial, Verifier } from '@sigstore/verify';

const [folder, digest, identity, issuer] = process.argv.slice(2);
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}.json`, 'utf8'));
const bundle = bundleFromJSON(read('bundle'));
const trust = toTrustMaterial(TrustedRoot.fromJSON(read('trusted_root')));
// A policy of an extension is the issuer's.
const policy = { subjectAlternativeName: identity, extensions: { issuer } };
new Verifier(trust).verify(toSignedEntity(bundle), policy);
const { subject } = JSON.parse(bundle.content.dsseEnvelope.payload.toString());
if (`sha256:${subject[0].digest.sha256}` !== digest) throw new Error('it is about another manifest');
