// Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.

/** Option of `needs`, and the contract's name of the kind. */
export const KINDS = { fsRead: "fs-read", fsWrite: "fs-write", net: "net", process: "process", secret: "secret", kv: "kv", env: "env", attachments: "attachments", clock: "clock", random: "random", invoke: "invoke" };

/** The kinds without a target, with the value that replaces it. */
export const SWITCHES = { clock: "wall", random: "bytes" };

export const KV_SCOPES = ["tool", "plugin", "session", "agent"];

/** The options of a tool that are traits. */
export const TRAITS = ["readOnly", "additive", "idempotent", "closedWorld", "alwaysInclude", "untrustedOutput", "needsApproval", "deferred"];

export const CODES = Object.freeze(["input-invalid", "not-available", "execution-failed", "stale-write"]);

/** The name of a tool. */
export const NAME = /^[a-zA-Z0-9_-]{1,48}$/;

/** The error of a tool for each error of an interface: code, subject, message. */
export const ERRORS = {
    "attachments": {
        "denied": ["not-available", "denied", "no access to the attachment `{name}`: {value}"],
        "not-found": ["execution-failed", "not-found", "no attachment `{name}`"],
        "too-large": ["execution-failed", "too-large", "the attachment `{name}` is too large: {value} bytes"],
        "other": ["execution-failed", null, "the attachment `{name}`: {value}"],
    },
    "files": {
        "denied": ["not-available", "denied", "{value}"],
        "not-found": ["execution-failed", "not-found", "`{name}` does not exist"],
        "stale": ["stale-write", "{name}", "`{name}` changed since it was read: read it again, then write"],
        "too-large": ["execution-failed", "too-large", "`{name}` is too large: {value} bytes"],
        "other": ["execution-failed", null, "{value}"],
    },
    "httpClient": {
        "denied": ["not-available", "denied", "no access to `{name}`: {value}"],
        "invalid-request": ["execution-failed", null, "the request to `{name}` is invalid: {value}"],
        "timeout": ["execution-failed", "timeout", "`{name}` did not answer in time"],
        "cancelled": ["execution-failed", "cancelled", "the call was cancelled"],
        "transport": ["execution-failed", "transport", "`{name}`: {value}"],
    },
    "kv": {
        "denied": ["not-available", "denied", "no access to the store: {value}"],
        "too-large": ["execution-failed", "too-large", "the value of `{name}` is too large: {value} bytes; the operator can raise `kv_value_bytes`"],
        "quota-exceeded": ["not-available", "quota", "the store of the plugin is full: remove something, or ask the operator to raise `kv_bytes` or `kv_keys`"],
        "not-a-number": ["execution-failed", null, "`{name}` does not hold a number"],
        "other": ["execution-failed", null, "the store failed: {value}"],
    },
    "process": {
        "denied": ["not-available", "denied", "`{name}` may not be run: {value}"],
        "not-found": ["not-available", "missing-binary", "no program `{value}` here"],
        "timeout": ["execution-failed", "timeout", "`{name}` did not end in time"],
        "cancelled": ["execution-failed", "cancelled", "the call was cancelled"],
        "other": ["execution-failed", null, "`{name}`: {value}"],
    },
    "secrets": {
        "denied": ["not-available", "denied", "no access to the secret `{name}`: {value}"],
        "not-found": ["not-available", "missing-secret", "the secret `{name}` is not set"],
        "other": ["execution-failed", null, "the secret `{name}`: {value}"],
    },
};
