/* Write Toolbay plugins in C: tools are functions with a name, a description and a JSON Schema.
 *
 *     static tb_result shout(tb_json args) {
 *       tb_str text = tb_get_str(args, "text", "");
 *       if (text.len == 0) return tb_input_error("/text", "the text is empty");
 *       return tb_text("%v!", text);
 *     }
 *
 *     static const tb_tool tools[] = {{
 *       .name = "shout", .description = "Say it louder.", .traits = TB_READ_ONLY, .run = shout,
 *       .input = TB_JSON({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
 *     }};
 *     TB_TOOLS(tools)
 *
 * An instance lives for one call, so memory is never freed. There is no standard library, only this header and the
 * compiler's own headers (<stdint.h>, <stdbool.h>, <stddef.h>).
 */
#ifndef TOOLBAY_H
#define TOOLBAY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "toolbay_contract.h" /* traits, scopes, error codes */

/* Not macros, because TB_JSON inside another macro would expand them to 0 and 1. */
#if __STDC_VERSION__ < 202000L
#undef false
#undef true
enum { false, true };
#endif

/* ---- Texts and bytes, without a terminating zero. ---- */

typedef struct { const char *data; size_t len; } tb_str;
typedef tb_str tb_json; /* a JSON text: an object, or a part of one */
typedef struct { const uint8_t *data; size_t len; } tb_bytes;

#define TB_STR(literal) ((tb_str){(literal), sizeof(literal) - 1})
/* A JSON text without backslashes: TB_JSON({"type": "object"}). */
#define TB_JSON(...) #__VA_ARGS__

tb_str tb_str_of(const char *ended_by_zero);
bool tb_equal(tb_str a, const char *b);
tb_bytes tb_bytes_of(tb_str text);
bool tb_is_utf8(tb_bytes data);
/* Bytes as a text. Invalid UTF-8 is replaced. Every text for the host is converted this way. */
tb_str tb_utf8(tb_bytes data);
/* Allocates memory until the end of the call. Without memory the call ends. */
void *tb_alloc(size_t bytes);
/* For loops over more data than fits: releases everything allocated since the mark, also by the host. */
size_t tb_mark(void);
void tb_release(size_t mark);

/* %s char*, %v tb_str, %q tb_str as a JSON string, %d int, %l int64_t, %u size_t, %x unsigned, %f double, %c, %%. */
tb_str tb_format(const char *format, ...);
tb_str tb_vformat(const char *format, va_list args);

/* A text that grows. */
typedef struct { char *data; size_t len, capacity; } tb_buffer;
void tb_put(tb_buffer *to, const char *format, ...);
void tb_put_str(tb_buffer *to, tb_str text);
static inline tb_str tb_done(const tb_buffer *buffer) { return (tb_str){buffer->data, buffer->len}; }

/* ---- JSON: the host has validated the arguments against the schema. ---- */

/* The value of a key as a JSON text; `.data` is NULL if the key is missing. */
tb_json tb_get(tb_json object, const char *key);
/* The element of an array; `.data` is NULL after the last. */
tb_json tb_at(tb_json array, size_t index);
/* The value of a key, or `otherwise` if it is absent, null or of another type. Integers are exact, or cut to 64 bits. */
tb_str tb_get_str(tb_json object, const char *key, const char *otherwise);
int64_t tb_get_int(tb_json object, const char *key, int64_t otherwise);
double tb_get_double(tb_json object, const char *key, double otherwise);
bool tb_get_bool(tb_json object, const char *key, bool otherwise);
/* Converts a JSON value. */
tb_str tb_as_str(tb_json value);
double tb_as_double(tb_json value);

/* ---- Results. ---- */

typedef struct tb_answer tb_answer;
typedef struct { tb_answer *answer; } tb_result;

tb_result tb_text(const char *format, ...);
/* A JSON text, for the model and for programs. A value that is not an object is wrapped as {"result": …}. */
tb_result tb_structured(tb_json json);
/* A text for the model, another for programs. */
tb_result tb_rendered(tb_str text, tb_json json);

/* Further blocks. In all structures, NULL and 0 mean: not said. */
typedef struct { const char *uri, *name, *title, *description, *mime_type; uint64_t size; } tb_link;
typedef struct {
  bool user, assistant; /* the audience; neither: everyone */
  float priority;       /* up to 1 */
  const char *last_modified; /* ISO 8601 */
} tb_annotations;
tb_result tb_with_text(tb_result result, tb_str text);
tb_result tb_with_image(tb_result result, tb_bytes data, const char *mime_type);
tb_result tb_with_audio(tb_result result, tb_bytes data, const char *mime_type);
tb_result tb_with_link(tb_result result, tb_link link);
/* A resource with its content. `mime_type` may be NULL. */
tb_result tb_with_embedded_text(tb_result result, const char *uri, const char *mime_type, tb_str text);
tb_result tb_with_embedded(tb_result result, const char *uri, const char *mime_type, tb_bytes data);
/* Annotates the last block. Without one, the result is an error. */
tb_result tb_with_annotations(tb_result result, tb_annotations annotations);
tb_result tb_with_cost(tb_result result, double usd);
tb_result tb_with_meta(tb_result result, tb_json object);

/* The four error classes. `subject` may be NULL; `tool-error` in types.wit describes it. */
tb_result tb_input_error(const char *subject, const char *format, ...);
tb_result tb_not_available(const char *subject, const char *format, ...);
tb_result tb_failed(const char *subject, const char *format, ...);
tb_result tb_stale(const char *subject, const char *format, ...);
/* The host's error after a function below returned false. */
tb_result tb_host_error(void);

/* ---- Tools. ---- */

/* `kind`, `target`: as in `capability` of types.wit; a kind without a target has NULL. */
typedef struct { const char *kind, *target, *reason; bool optional; } tb_need;

typedef struct {
  const char *name, *title, *description;
  const char *input;  /* JSON Schema of the arguments; NULL: none */
  const char *output; /* JSON Schema of the structured result; NULL: none */
  const char *meta;   /* a JSON object; "examples" in it are calls that `toolbay test` tries */
  const char *toolset;
  const char *tags[8];
  int traits;
  uint32_t max_result_chars, timeout_ms; /* 0: not said */
  tb_need needs[8];
  tb_result (*run)(tb_json args);
} tb_tool;

/* `reusable`: one instance may serve several calls, one after the other. */
typedef struct {
  const char *name, *version, *description, *authors, *license, *homepage, *source;
  const char *config_schema; /* JSON Schema of the operator's settings */
  bool reusable;
} tb_about;

/* A result for a reducer. `error_code` is NULL if the tool succeeded. */
typedef struct {
  tb_str tool_name;
  tb_json args;
  uint32_t turn_count, budget_chars;
  const char *error_code;
  tb_str value; /* the text, or the error's message */
  tb_json structured;
} tb_reducible;

/* Returns a shorter text. A text without data keeps the result. */
typedef struct {
  const char *tool_name, *description;
  tb_str (*reduce)(const tb_reducible *result);
} tb_reducer;

#define TB_EXPORT(name) __attribute__((export_name(name), used))
#define TB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

void *tb_list_tools(const tb_tool *tools, size_t count);
void *tb_call(const tb_tool *tools, size_t count, char *name, size_t name_len, char *args, size_t args_len);
void *tb_describe(const tb_about *about);
void *tb_check(const char *(*check)(tb_str tool), char *tool, size_t tool_len);
void *tb_list_reducers(const tb_reducer *reducers, size_t count);
void *tb_reduce(const tb_reducer *reducers, size_t count, void *params);

/* Exports an array of tools. */
#define TB_TOOLS(tools) \
  TB_EXPORT("toolbay:plugin/tools@0.1.0#list-tools") void *tb_export_list_tools(void) { \
    return tb_list_tools((tools), TB_COUNT(tools)); \
  } \
  TB_EXPORT("toolbay:plugin/tools@0.1.0#call") \
  void *tb_export_call(char *name, size_t name_len, char *args, size_t args_len) { \
    return tb_call((tools), TB_COUNT(tools), name, name_len, args, args_len); \
  }

/* Exports the metadata: TB_ABOUT(.name = "…", .version = "…"). */
#define TB_ABOUT(...) \
  TB_EXPORT("toolbay:plugin/about@0.1.0#describe") void *tb_export_describe(void) { \
    static const tb_about about = {__VA_ARGS__}; \
    return tb_describe(&about); \
  }

/* Exports a function that returns why a tool is unavailable, or NULL. It sees only the settings. */
#define TB_AVAILABLE(check) \
  TB_EXPORT("toolbay:plugin/availability@0.1.0#check") void *tb_export_check(char *tool, size_t tool_len) { \
    return tb_check((check), tool, tool_len); \
  }

/* Exports an array of reducers. */
#define TB_REDUCERS(reducers) \
  TB_EXPORT("toolbay:plugin/reducers@0.1.0#list-reducers") void *tb_export_list_reducers(void) { \
    return tb_list_reducers((reducers), TB_COUNT(reducers)); \
  } \
  TB_EXPORT("toolbay:plugin/reducers@0.1.0#reduce") void *tb_export_reduce(void *params) { \
    return tb_reduce((reducers), TB_COUNT(reducers), params); \
  }

/* ---- The host. A function that returns false was refused or failed: `return tb_host_error();` ---- */

/* The running call. */
typedef enum { TB_FOR_LOG, TB_FOR_USER, TB_FOR_DASHBOARD } tb_audience;
void tb_progress(float percent, const char *format, ...); /* to the user, 0 to 100; below 0: not said */
void tb_progress_to(tb_audience audience, float percent, const char *format, ...);
bool tb_cancelled(void);
uint32_t tb_budget_chars(void);
bool tb_remaining_ms(uint64_t *ms); /* false: not known */
bool tb_dry_run(void);
/* A random number, for tools that declare `random`. Without the grant, each call gets the same ones. */
uint64_t tb_random_u64(void);
tb_str tb_call_id(void);
/* Unknown texts have length 0. */
tb_str tb_session_id(void);
tb_str tb_session_key(void);
tb_str tb_platform(void);
tb_str tb_working_dir(void);
tb_str tb_agent_id(void);
tb_str tb_personality_id(void);
tb_str tb_team_id(void);
bool tb_turn(uint32_t *turn);
bool tb_message_count(uint32_t *count);
tb_json tb_attribute(const char *name);

typedef struct { tb_str name, value; } tb_pair;
typedef enum { TB_TRACE, TB_DEBUG, TB_INFO, TB_WARN, TB_ERROR } tb_level;
void tb_log(tb_level level, const char *format, ...);
void tb_log_with(tb_level level, const tb_pair *fields, size_t count, const char *format, ...);

/* The operator's settings as JSON texts; `.data` is NULL for a missing setting. */
tb_json tb_config(const char *key);
size_t tb_config_keys(tb_str **keys);

bool tb_kv_get(tb_scope scope, tb_str key, tb_bytes *value); /* `.data` is NULL if there is none */
bool tb_kv_set(tb_scope scope, tb_str key, tb_bytes value, uint32_t ttl_seconds); /* 0: for good */
bool tb_kv_remove(tb_scope scope, tb_str key);
bool tb_kv_keys(tb_scope scope, tb_str prefix, tb_str after, uint32_t limit, tb_str **keys, size_t *count);
bool tb_kv_increment(tb_scope scope, tb_str key, int64_t by, int64_t *sum);
/* Sets the key only if it holds `expected` (`.data` NULL: no value). */
bool tb_kv_replace(tb_scope scope, tb_str key, tb_bytes expected, tb_bytes value, bool *replaced);

bool tb_secret(const char *name, tb_str *text, bool *revealed); /* `revealed` may be NULL */

typedef struct {
  const char *method; /* NULL: GET */
  tb_str url;
  const tb_pair *headers;
  size_t header_count;
  tb_bytes body; /* `.data` NULL: none */
  uint32_t timeout_ms;         /* 0: as long as the call may take */
  uint64_t max_response_bytes; /* 0: as many as the operator allows */
} tb_request;
typedef struct {
  uint16_t status;
  tb_str url;
  tb_pair *headers;
  size_t header_count;
  tb_bytes body;
  bool truncated;
} tb_response;
bool tb_fetch(const tb_request *request, tb_response *response);

typedef enum { TB_FILE, TB_DIRECTORY, TB_SYMLINK, TB_OTHER } tb_file_kind;
typedef struct { tb_file_kind kind; uint64_t size, modified_ms; tb_str version; } tb_stat;
typedef struct { tb_str name; tb_file_kind kind; } tb_entry;
bool tb_file_read(tb_str path, tb_bytes *data);
bool tb_file_read_text(tb_str path, tb_str *text); /* must be UTF-8 */
bool tb_file_read_part(tb_str path, uint64_t offset, uint64_t max_bytes, tb_bytes *data, tb_stat *stat);
/* With an `expected_version` of length 0, the write fails if the file changed since this session read it. `stat` may be NULL. */
bool tb_file_write(tb_str path, tb_bytes data, tb_str expected_version, tb_stat *stat);
bool tb_file_stat(tb_str path, tb_stat *stat);
bool tb_file_list(tb_str path, tb_entry **entries, size_t *count);
bool tb_file_make_dir(tb_str path);
bool tb_file_remove(tb_str path);

typedef struct {
  tb_str program;
  const tb_str *args;
  size_t arg_count;
  tb_str cwd; /* of length 0: the operator's */
  const tb_pair *env;
  size_t env_count;
  tb_bytes input; /* `.data` NULL: none */
  uint32_t timeout_ms, max_output_bytes; /* 0: as the operator allows */
} tb_command;
typedef struct { bool exited; int32_t exit_code; tb_bytes output, errors; bool truncated; } tb_completed;
bool tb_run(const tb_command *command, tb_completed *completed);

typedef struct { tb_str id, name, mime_type; uint64_t size; } tb_attachment;
size_t tb_attachments(tb_attachment **all);
bool tb_attachment_read(tb_str id, tb_bytes *data);
bool tb_attachment_create(tb_str name, tb_str mime_type, tb_bytes data, tb_attachment *made);

/* Calls of other tools. Each passes the same gates as a call of a model. */
typedef struct { tb_str name, description; tb_json input_schema, output_schema; } tb_callable;
typedef struct { tb_str name; tb_json args; } tb_invocation;
typedef struct {
  tb_result error; /* `.answer` NULL: the call succeeded */
  const char *error_code;
  tb_str value; /* the text, or the error's message */
  tb_json structured; /* `.data` NULL: none */
  bool truncated;
} tb_invoked;
size_t tb_callables(tb_callable **all); /* sorted by name */
/* Makes calls concurrently and returns an array of as many results. If it returns false, no call was made. */
bool tb_invoke(const tb_invocation *calls, size_t count, tb_invoked **results);

#endif
