# Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.

# The keys of `needs`. The contract's name has `-` for `_`.
KINDS = ("fs_read", "fs_write", "net", "process", "secret", "kv", "env", "attachments", "clock", "random", "invoke")
# The kinds without a target, with the value that replaces it.
SWITCHES = {"clock": "wall", "random": "bytes"}
KV_SCOPES = ("tool", "plugin", "session", "agent")
TRAITS = ("read_only", "additive", "idempotent", "closed_world", "always_include", "untrusted_output", "needs_approval", "deferred")
CODES = ("input-invalid", "not-available", "execution-failed", "stale-write")
# The name of a tool.
NAME = "[a-zA-Z0-9_-]{1,48}"

# The error of a tool for each error of an interface: code, subject, message.
ERRORS = {
    "attachments": {
        "Denied": ("not-available", "denied", "no access to the attachment `{name}`: {value}"),
        "NotFound": ("execution-failed", "not-found", "no attachment `{name}`"),
        "TooLarge": ("execution-failed", "too-large", "the attachment `{name}` is too large: {value} bytes"),
        "Other": ("execution-failed", None, "the attachment `{name}`: {value}"),
    },
    "files": {
        "Denied": ("not-available", "denied", "{value}"),
        "NotFound": ("execution-failed", "not-found", "`{name}` does not exist"),
        "Stale": ("stale-write", "{name}", "`{name}` changed since it was read: read it again, then write"),
        "TooLarge": ("execution-failed", "too-large", "`{name}` is too large: {value} bytes"),
        "Other": ("execution-failed", None, "{value}"),
    },
    "httpClient": {
        "Denied": ("not-available", "denied", "no access to `{name}`: {value}"),
        "InvalidRequest": ("execution-failed", None, "the request to `{name}` is invalid: {value}"),
        "Timeout": ("execution-failed", "timeout", "`{name}` did not answer in time"),
        "Cancelled": ("execution-failed", "cancelled", "the call was cancelled"),
        "Transport": ("execution-failed", "transport", "`{name}`: {value}"),
    },
    "kv": {
        "Denied": ("not-available", "denied", "no access to the store: {value}"),
        "TooLarge": ("execution-failed", "too-large", "the value of `{name}` is too large: {value} bytes; the operator can raise `kv_value_bytes`"),
        "QuotaExceeded": ("not-available", "quota", "the store of the plugin is full: remove something, or ask the operator to raise `kv_bytes` or `kv_keys`"),
        "NotANumber": ("execution-failed", None, "`{name}` does not hold a number"),
        "Other": ("execution-failed", None, "the store failed: {value}"),
    },
    "process": {
        "Denied": ("not-available", "denied", "`{name}` may not be run: {value}"),
        "NotFound": ("not-available", "missing-binary", "no program `{value}` here"),
        "Timeout": ("execution-failed", "timeout", "`{name}` did not end in time"),
        "Cancelled": ("execution-failed", "cancelled", "the call was cancelled"),
        "Other": ("execution-failed", None, "`{name}`: {value}"),
    },
    "secrets": {
        "Denied": ("not-available", "denied", "no access to the secret `{name}`: {value}"),
        "NotFound": ("not-available", "missing-secret", "the secret `{name}` is not set"),
        "Other": ("execution-failed", None, "the secret `{name}`: {value}"),
    },
}
