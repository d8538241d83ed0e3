/* Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`. */
#ifndef TOOLBAY_CONTRACT_H
#define TOOLBAY_CONTRACT_H

typedef enum { TB_READ_ONLY = 1, TB_ADDITIVE = 2, TB_IDEMPOTENT = 4, TB_CLOSED_WORLD = 8, TB_ALWAYS_INCLUDE = 16, TB_UNTRUSTED_OUTPUT = 32, TB_NEEDS_APPROVAL = 64, TB_DEFERRED = 128 } tb_traits;

typedef enum { TB_OF_TOOL, TB_OF_PLUGIN, TB_OF_SESSION, TB_OF_AGENT } tb_scope;

enum { TB_CODE_INPUT_INVALID, TB_CODE_NOT_AVAILABLE, TB_CODE_EXECUTION_FAILED, TB_CODE_STALE_WRITE };
#define TB_CODE_NAMES "input-invalid", "not-available", "execution-failed", "stale-write"

/* The target of a kind that has none. */
#define TB_SWITCH_TARGET(kind) (tb_equal(kind, "clock") ? "wall" : "bytes")

#endif
