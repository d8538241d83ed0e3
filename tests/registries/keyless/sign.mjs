// Signs the digest of a manifest with a certificate of a certificate authority that exists only here, logs the signature,
// and writes the bundle and the trust root:
//
//     node sign.mjs FOLDER DIGEST IDENTITY ISSUER [STEP]
//
// STEP leaves something out, or makes it wrong: `no-proof`.

import { createHash, generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fulcioHandler, initializeCA, initializeCTLog, initializeTLog } from '@sigstore/mock';
import { DSSEBundleBuilder, FulcioSigner, RekorWitness } from '@sigstore/sign';

const [folder, digest, identity, issuer, step] = process.argv.slice(2);
const keys = () => generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
const sha256 = (bytes) => createHash('sha256').update(bytes).digest();
const base64 = (value) => Buffer.from(value).toString('base64');

// The log and the authority start before the signature is made.
const begin = new Date(Date.now() - 60_000).toISOString();
const certificateLog = await initializeCTLog(keys());
const authority = await initializeCA(keys(), certificateLog);
const log = await initializeTLog('http://localhost', keys());

/** The entry as Rekor keeps it: digests and the signature in place of the envelope. */
function logged({ apiVersion, kind, spec: { proposedContent } }) {
    const envelope = JSON.parse(proposedContent.envelope);
    const hash = (bytes) => ({ algorithm: 'sha256', value: sha256(bytes).toString('hex') });
    const [verifier] = proposedContent.verifiers;
    return {
        apiVersion,
        kind,
        spec: {
            envelopeHash: hash(proposedContent.envelope),
            payloadHash: hash(Buffer.from(envelope.payload, 'base64')),
            signatures: envelope.signatures.map(({ sig }) => ({ signature: sig, verifier: rewrapped(verifier) })),
        },
    };
}

/** PEM with lines of 64 characters, as Go writes it. */
function rewrapped(encoded) {
    const pem = Buffer.from(encoded, 'base64').toString();
    const body = pem.replace(/-----[A-Z ]+-----/g, '').replace(/\s/g, '');
    const lines = body.match(/.{1,64}/g).join('\n');
    return base64(`-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`);
}

const fulcio = fulcioHandler(authority);
const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', async () => {
        const body = Buffer.concat(parts).toString();
        const answer =
            request.url === fulcio.path
                ? await fulcio.fn(body)
                : { statusCode: 201, response: JSON.stringify(await log.log(logged(JSON.parse(body)))) };
        response.writeHead(answer.statusCode, { 'content-type': 'application/json' });
        response.end(answer.response);
    });
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const url = `http://127.0.0.1:${server.address().port}`;

const claims = { sub: identity, iss: issuer, aud: 'sigstore' };
const token = ['{"alg":"none"}', JSON.stringify(claims), ''].map((part) => Buffer.from(part).toString('base64url'));
const signer = new FulcioSigner({
    fulcioBaseURL: url,
    identityProvider: { getToken: async () => token.join('.') },
});
const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ digest: { sha256: digest.replace('sha256:', '') } }],
    predicateType: 'https://sigstore.dev/cosign/sign/v1',
    predicate: {},
};
const builder = new DSSEBundleBuilder({ signer, witnesses: [new RekorWitness({ rekorBaseURL: url })] });
const bundle = await builder.create({
    data: Buffer.from(JSON.stringify(statement)),
    type: 'application/vnd.in-toto+json',
});
server.close();

/** Bytes as base64 and numbers as text, as protobuf writes JSON. */
function toJson(value) {
    if (value instanceof Uint8Array) return base64(value);
    if (Array.isArray(value)) return value.map(toJson);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, toJson(inner)]));
}
const { verificationMaterial: material, content } = bundle;
const entries = toJson(material.tlogEntries);
for (const entry of entries) {
    if (step === 'no-proof') delete entry.inclusionProof;
}
const written = {
    mediaType: bundle.mediaType,
    verificationMaterial: { certificate: toJson(material.content.certificate), tlogEntries: entries },
    dsseEnvelope: toJson(content.dsseEnvelope),
};
writeFileSync(`${folder}/bundle.json`, JSON.stringify(written));

const publicKey = (bytes) => ({
    rawBytes: base64(bytes),
    keyDetails: 'PKIX_ECDSA_P256_SHA_256',
    validFor: { start: begin },
});
const trustedLog = (key, id) => ({
    baseUrl: 'http://localhost',
    hashAlgorithm: 'SHA2_256',
    publicKey: publicKey(key),
    logId: { keyId: base64(id) },
});
writeFileSync(
    `${folder}/trusted_root.json`,
    JSON.stringify({
        mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
        tlogs: [trustedLog(log.publicKey, sha256(log.publicKey))],
        certificateAuthorities: [
            {
                subject: { organization: 'sigstore.mock', commonName: 'sigstore' },
                uri: 'http://localhost',
                certChain: { certificates: [{ rawBytes: base64(authority.rootCertificate) }] },
                validFor: { start: begin },
            },
        ],
        ctlogs: [trustedLog(certificateLog.publicKey, Buffer.from(certificateLog.logID))],
        timestampAuthorities: [],
    }),
);
