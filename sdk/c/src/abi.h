/* The memory layout of the contract. On wasm32, C lays out these structures like the canonical ABI of the component
 * model, so they are read and written in place; `_Static_assert` checks the sizes. The functions of the host are in
 * `host.c`, each beside its wrapper. */
#ifndef TOOLBAY_ABI_H
#define TOOLBAY_ABI_H

#include "toolbay.h"

#define ABI_OPTION(type) struct { uint8_t some; type value; }
#define ABI_LIST(type) struct { type *data; size_t len; }

typedef ABI_OPTION(tb_str) abi_option_str;
typedef ABI_OPTION(uint32_t) abi_option_u32;
typedef ABI_OPTION(uint64_t) abi_option_u64;
typedef ABI_OPTION(double) abi_option_f64;
typedef ABI_OPTION(tb_bytes) abi_option_bytes;
typedef ABI_LIST(tb_str) abi_list_str;

typedef struct { tb_str kind, target; uint8_t optional; abi_option_str reason; } abi_capability;

typedef struct {
  tb_str name;
  abi_option_str title;
  tb_str description, input_schema;
  abi_option_str output_schema, toolset;
  abi_list_str tags;
  uint8_t traits;
  abi_option_u32 max_result_chars, timeout_ms;
  ABI_LIST(abi_capability) capabilities;
  abi_option_str meta;
} abi_tool_def;

typedef struct { uint8_t code; tb_str message; abi_option_str subject; abi_option_f64 cost_usd; } abi_tool_error;

typedef struct { tb_bytes data; tb_str mime_type; } abi_blob;
typedef struct { tb_str uri, name; abi_option_str title, description, mime_type; abi_option_u64 size; } abi_link;
typedef struct { tb_str uri; abi_option_str mime_type; uint8_t body_case; tb_bytes body; } abi_embedded;
enum { RESOURCE_TEXT, RESOURCE_BLOB };
enum { ROLE_USER, ROLE_ASSISTANT };
enum { BLOCK_TEXT, BLOCK_IMAGE, BLOCK_AUDIO, BLOCK_LINK, BLOCK_EMBEDDED };
typedef struct {
  uint8_t block_case;
  union { tb_str text; abi_blob blob; abi_link link; abi_embedded embedded; };
} abi_body;
typedef struct { ABI_LIST(uint8_t) audience; ABI_OPTION(float) priority; abi_option_str last_modified; } abi_annotations;
typedef struct { abi_body body; ABI_OPTION(abi_annotations) annotations; } abi_block;
typedef ABI_LIST(abi_block) abi_blocks;

typedef struct {
  tb_str value;
  abi_option_str structured;
  abi_blocks content;
  abi_option_f64 cost_usd;
  abi_option_str meta;
} abi_tool_output;

/* result<tool-output, tool-error> */
struct tb_answer {
  uint8_t is_error;
  union { abi_tool_output output; abi_tool_error error; };
};

typedef struct {
  tb_str name, version;
  abi_option_str description, authors, license, homepage, source, config_schema, meta;
} abi_plugin_info;

typedef struct { tb_str tool_name; abi_option_str description; } abi_reducer_def;
typedef struct { tb_str tool_name, args; uint32_t turn_count, budget_chars; } abi_reduce_context;

_Static_assert(sizeof(void *) == 4, "plugins are built for wasm32");
_Static_assert(sizeof(abi_option_str) == 12 && sizeof(abi_option_u64) == 16 && sizeof(abi_option_f64) == 16, "options");
_Static_assert(sizeof(abi_capability) == 32 && sizeof(abi_tool_def) == 108, "definitions");
_Static_assert(sizeof(abi_tool_error) == 40 && sizeof(abi_link) == 72 && sizeof(abi_block) == 112, "blocks");
_Static_assert(sizeof(abi_tool_output) == 64 && sizeof(struct tb_answer) == 72, "results");
_Static_assert(sizeof(abi_plugin_info) == 100 && sizeof(abi_reduce_context) == 24, "the rest");

static inline abi_option_str abi_some(const char *text) {
  return text ? (abi_option_str){1, tb_str_of(text)} : (abi_option_str){0};
}

static inline abi_option_u64 abi_not_0(uint64_t number) { return (abi_option_u64){number != 0, number}; }

tb_result tb_error_of(uint8_t code, tb_str subject, tb_str message);
/* The name of an error code. */
const char *tb_code_name(uint8_t code);

#endif
