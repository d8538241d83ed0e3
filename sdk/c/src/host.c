/* The host's functions: the raw imports, and their wrappers for authors. */

#include "abi.h"

#define IMPORT(interface, name) \
  __attribute__((import_module("toolbay:plugin/" interface "@0.1.0"), import_name(name))) extern

/* A text or bytes, as two arguments. */
#define TWO(text) (text).data, (text).len
/* An optional text or bytes: absent without data. */
#define MAY_BE(text) (text).data != NULL, (text).data, (text).len
/* An optional number: absent if 0. */
#define IF_NOT_0(number) (number) != 0, (number)

static tb_result last_error;

tb_result tb_host_error(void) {
  return last_error.answer ? last_error : tb_failed(NULL, "the host said no, and nobody asked it anything");
}

static bool refused(uint8_t code, tb_str subject, tb_str message) {
  last_error = tb_error_of(code, subject, message);
  return false;
}

#include "errors.h"

#define FORMAT(name, text) \
  va_list args; \
  va_start(args, format); \
  tb_str text = tb_vformat(format, args); \
  va_end(args)

/* ---- context ---- */

IMPORT("context", "progress") void context_progress(const char *, size_t, int some, float percent, int audience);
IMPORT("context", "cancelled") int context_cancelled(void);
IMPORT("context", "budget-chars") uint32_t context_budget_chars(void);
IMPORT("context", "remaining-ms") void context_remaining_ms(abi_option_u64 *);
IMPORT("context", "dry-run") int context_dry_run(void);
IMPORT("context", "call-id") void context_call_id(tb_str *);
IMPORT("context", "session-id") void context_session_id(abi_option_str *);
IMPORT("context", "session-key") void context_session_key(abi_option_str *);
IMPORT("context", "platform") void context_platform(abi_option_str *);
IMPORT("context", "working-dir") void context_working_dir(abi_option_str *);
IMPORT("context", "agent-id") void context_agent_id(abi_option_str *);
IMPORT("context", "personality-id") void context_personality_id(abi_option_str *);
IMPORT("context", "team-id") void context_team_id(abi_option_str *);
IMPORT("context", "turn") void context_turn(abi_option_u32 *);
IMPORT("context", "message-count") void context_message_count(abi_option_u32 *);
IMPORT("context", "attribute") void context_attribute(const char *, size_t, abi_option_str *);

void tb_progress(float percent, const char *format, ...) {
  FORMAT(format, message);
  context_progress(TWO(message), percent >= 0, percent, TB_FOR_USER);
}

void tb_progress_to(tb_audience audience, float percent, const char *format, ...) {
  FORMAT(format, message);
  context_progress(TWO(message), percent >= 0, percent, (int)audience);
}

bool tb_cancelled(void) { return context_cancelled(); }
uint32_t tb_budget_chars(void) { return context_budget_chars(); }
bool tb_dry_run(void) { return context_dry_run(); }

__attribute__((import_module("wasi:random/random@0.2.0"), import_name("get-random-u64"))) extern uint64_t wasi_random_u64(void);

uint64_t tb_random_u64(void) { return wasi_random_u64(); }

tb_str tb_call_id(void) {
  tb_str id;
  context_call_id(&id);
  return id;
}

bool tb_remaining_ms(uint64_t *ms) {
  abi_option_u64 got;
  context_remaining_ms(&got);
  *ms = got.some ? got.value : 0;
  return got.some;
}

#define GET_TEXT(name) \
  tb_str tb_##name(void) { \
    abi_option_str got; \
    context_##name(&got); \
    return got.some ? got.value : (tb_str){0}; \
  }
GET_TEXT(session_id)
GET_TEXT(session_key)
GET_TEXT(platform)
GET_TEXT(working_dir)
GET_TEXT(agent_id)
GET_TEXT(personality_id)
GET_TEXT(team_id)

#define GET_NUMBER(name) \
  bool tb_##name(uint32_t *number) { \
    abi_option_u32 got; \
    context_##name(&got); \
    *number = got.some ? got.value : 0; \
    return got.some; \
  }
GET_NUMBER(turn)
GET_NUMBER(message_count)

tb_json tb_attribute(const char *name) {
  abi_option_str got;
  context_attribute(TWO(tb_str_of(name)), &got);
  return got.some ? got.value : (tb_json){0};
}

/* ---- log, config ---- */

IMPORT("log", "write") void log_write(int level, const char *, size_t, const tb_pair *fields, size_t);

void tb_log(tb_level level, const char *format, ...) {
  FORMAT(format, message);
  log_write((int)level, TWO(message), (const tb_pair *)8, 0);
}

void tb_log_with(tb_level level, const tb_pair *fields, size_t count, const char *format, ...) {
  FORMAT(format, message);
  log_write((int)level, TWO(message), fields, count);
}

IMPORT("config", "get") void config_get(const char *, size_t, abi_option_str *);
IMPORT("config", "keys") void config_keys(abi_list_str *);

tb_json tb_config(const char *key) {
  abi_option_str got;
  config_get(TWO(tb_str_of(key)), &got);
  return got.some ? got.value : (tb_json){0};
}

size_t tb_config_keys(tb_str **keys) {
  abi_list_str got;
  config_keys(&got);
  *keys = got.data;
  return got.len;
}

/* ---- kv ---- */

#define KV_RESULT(type) struct { uint8_t is_error; union { type value; kv_error error; }; }
typedef KV_RESULT(abi_option_bytes) kv_got;
typedef KV_RESULT(uint8_t) kv_done;
typedef KV_RESULT(abi_list_str) kv_listed;
typedef KV_RESULT(int64_t) kv_sum;
_Static_assert(sizeof(kv_error) == 16 && sizeof(kv_got) == 24 && sizeof(kv_sum) == 24, "results of kv");

IMPORT("kv", "get") void kv_get(int scope, const char *, size_t, kv_got *);
IMPORT("kv", "set") void kv_set(int scope, const char *, size_t, const uint8_t *, size_t, int some, uint32_t ttl, kv_done *);
IMPORT("kv", "remove") void kv_remove(int scope, const char *, size_t, kv_done *);
IMPORT("kv", "keys")
void kv_keys(int scope, const char *, size_t, int some, const char *, size_t, uint32_t limit, kv_listed *);
IMPORT("kv", "increment") void kv_increment(int scope, const char *, size_t, int64_t by, kv_sum *);
IMPORT("kv", "replace")
void kv_replace(int scope, const char *, size_t, int some, const uint8_t *, size_t, const uint8_t *, size_t, kv_done *);

bool tb_kv_get(tb_scope scope, tb_str key, tb_bytes *value) {
  kv_got got;
  kv_get((int)scope, TWO(key), &got);
  if (got.is_error) return kv_refused(&got.error, key);
  *value = got.value.some ? got.value.value : (tb_bytes){0};
  return true;
}

bool tb_kv_set(tb_scope scope, tb_str key, tb_bytes value, uint32_t ttl_seconds) {
  kv_done got;
  kv_set((int)scope, TWO(key), TWO(value), IF_NOT_0(ttl_seconds), &got);
  return got.is_error ? kv_refused(&got.error, key) : true;
}

bool tb_kv_remove(tb_scope scope, tb_str key) {
  kv_done got;
  kv_remove((int)scope, TWO(key), &got);
  return got.is_error ? kv_refused(&got.error, key) : true;
}

bool tb_kv_keys(tb_scope scope, tb_str prefix, tb_str after, uint32_t limit, tb_str **keys, size_t *count) {
  kv_listed got;
  kv_keys((int)scope, TWO(prefix), MAY_BE(after), limit, &got);
  if (got.is_error) return kv_refused(&got.error, prefix);
  *keys = got.value.data;
  *count = got.value.len;
  return true;
}

bool tb_kv_increment(tb_scope scope, tb_str key, int64_t by, int64_t *sum) {
  kv_sum got;
  kv_increment((int)scope, TWO(key), by, &got);
  if (got.is_error) return kv_refused(&got.error, key);
  *sum = got.value;
  return true;
}

bool tb_kv_replace(tb_scope scope, tb_str key, tb_bytes expected, tb_bytes value, bool *replaced) {
  kv_done got;
  kv_replace((int)scope, TWO(key), MAY_BE(expected), TWO(value), &got);
  if (got.is_error) return kv_refused(&got.error, key);
  *replaced = got.value;
  return true;
}

/* ---- secrets ---- */

typedef struct { tb_str text; uint8_t revealed; } secret;
typedef struct { uint8_t is_error; union { secret value; secret_error error; }; } secret_got;

IMPORT("secrets", "get") void secrets_get(const char *, size_t, secret_got *);

bool tb_secret(const char *name, tb_str *text, bool *revealed) {
  secret_got got;
  secrets_get(TWO(tb_str_of(name)), &got);
  if (got.is_error) return secret_refused(&got.error, tb_str_of(name));
  *text = got.value.text;
  if (revealed) *revealed = got.value.revealed;
  return true;
}

/* ---- http-client ---- */

typedef struct {
  uint16_t status;
  tb_str url;
  ABI_LIST(tb_pair) headers;
  tb_bytes body;
  uint8_t truncated;
} http_response;
typedef struct { uint8_t is_error; union { http_response value; http_error error; }; } http_got;
_Static_assert(sizeof(http_response) == 32 && sizeof(http_got) == 36, "a response");

IMPORT("http-client", "fetch")
void http_fetch(const char *method, size_t, const char *url, size_t, const tb_pair *headers, size_t, int body,
                const uint8_t *, size_t, int timeout, uint32_t, int most, uint64_t, http_got *);

bool tb_fetch(const tb_request *request, tb_response *response) {
  tb_str method = tb_str_of(request->method ? request->method : "GET");
  http_got got;
  http_fetch(TWO(method), TWO(request->url), request->headers, request->header_count, MAY_BE(request->body),
             IF_NOT_0(request->timeout_ms), IF_NOT_0(request->max_response_bytes), &got);
  if (got.is_error) return http_refused(&got.error, request->url);
  const http_response *value = &got.value;
  *response = (tb_response){value->status, value->url, value->headers.data, value->headers.len, value->body, value->truncated};
  return true;
}

/* ---- files ---- */

typedef struct { uint8_t kind; uint64_t size, modified_ms; tb_str version; } file_stat;
typedef struct { tb_bytes data; file_stat stat; } file_data;
typedef struct { tb_str name; uint8_t kind; } file_entry;
#define FILE_RESULT(type) struct { uint8_t is_error; union { type value; file_error error; }; }
typedef FILE_RESULT(file_data) file_read_got;
typedef FILE_RESULT(file_stat) file_stat_got;
typedef FILE_RESULT(ABI_LIST(file_entry)) file_listed;
typedef struct { uint8_t is_error; file_error error; } file_done;
_Static_assert(sizeof(file_stat) == 32 && sizeof(file_read_got) == 48 && sizeof(file_done) == 24, "results of files");

IMPORT("files", "read") void files_read(const char *, size_t, uint64_t offset, int some, uint64_t, file_read_got *);
IMPORT("files", "write")
void files_write(const char *, size_t, const uint8_t *, size_t, int some, const char *, size_t, file_stat_got *);
IMPORT("files", "stat") void files_stat(const char *, size_t, file_stat_got *);
IMPORT("files", "read-dir") void files_read_dir(const char *, size_t, file_listed *);
IMPORT("files", "make-dir") void files_make_dir(const char *, size_t, file_done *);
IMPORT("files", "remove") void files_remove(const char *, size_t, file_done *);

static tb_stat stat_of(const file_stat *stat) {
  return (tb_stat){(tb_file_kind)stat->kind, stat->size, stat->modified_ms, stat->version};
}

static bool read_file(tb_str path, uint64_t offset, bool some, uint64_t max_bytes, tb_bytes *data, tb_stat *stat) {
  file_read_got got;
  files_read(TWO(path), offset, some, max_bytes, &got);
  if (got.is_error) return file_refused(&got.error, path);
  *data = got.value.data;
  if (stat) *stat = stat_of(&got.value.stat);
  return true;
}

bool tb_file_read(tb_str path, tb_bytes *data) { return read_file(path, 0, false, 0, data, NULL); }

bool tb_file_read_text(tb_str path, tb_str *text) {
  tb_bytes data;
  if (!tb_file_read(path, &data)) return false;
  if (!tb_is_utf8(data)) return refused(TB_CODE_EXECUTION_FAILED, TB_STR("not-text"), tb_format("`%v` is not UTF-8 text", path));
  *text = (tb_str){(const char *)data.data, data.len};
  return true;
}

bool tb_file_read_part(tb_str path, uint64_t offset, uint64_t max_bytes, tb_bytes *data, tb_stat *stat) {
  return read_file(path, offset, true, max_bytes, data, stat);
}

bool tb_file_write(tb_str path, tb_bytes data, tb_str expected_version, tb_stat *stat) {
  file_stat_got got;
  files_write(TWO(path), TWO(data), expected_version.len != 0, TWO(expected_version), &got);
  if (got.is_error) return file_refused(&got.error, path);
  if (stat) *stat = stat_of(&got.value);
  return true;
}

bool tb_file_stat(tb_str path, tb_stat *stat) {
  file_stat_got got;
  files_stat(TWO(path), &got);
  if (got.is_error) return file_refused(&got.error, path);
  *stat = stat_of(&got.value);
  return true;
}

bool tb_file_list(tb_str path, tb_entry **entries, size_t *count) {
  file_listed got;
  files_read_dir(TWO(path), &got);
  if (got.is_error) return file_refused(&got.error, path);
  *entries = tb_alloc(got.value.len * sizeof **entries);
  *count = got.value.len;
  for (size_t at = 0; at < *count; at++)
    (*entries)[at] = (tb_entry){got.value.data[at].name, (tb_file_kind)got.value.data[at].kind};
  return true;
}

bool tb_file_make_dir(tb_str path) {
  file_done got;
  files_make_dir(TWO(path), &got);
  return got.is_error ? file_refused(&got.error, path) : true;
}

bool tb_file_remove(tb_str path) {
  file_done got;
  files_remove(TWO(path), &got);
  return got.is_error ? file_refused(&got.error, path) : true;
}

/* ---- process ---- */

typedef struct { ABI_OPTION(int32_t) exit_code; tb_bytes output, errors; uint8_t truncated; } process_completed;
typedef struct { uint8_t is_error; union { process_completed value; process_error error; }; } process_got;

IMPORT("process", "run")
void process_run(const char *program, size_t, const tb_str *args, size_t, int cwd, const char *, size_t,
                 const tb_pair *env, size_t, int input, const uint8_t *, size_t, int timeout, uint32_t, int most,
                 uint32_t, process_got *);

bool tb_run(const tb_command *command, tb_completed *completed) {
  process_got got;
  process_run(TWO(command->program), command->args, command->arg_count, command->cwd.len != 0, TWO(command->cwd),
              command->env, command->env_count, MAY_BE(command->input), IF_NOT_0(command->timeout_ms),
              IF_NOT_0(command->max_output_bytes), &got);
  if (got.is_error) return process_refused(&got.error, command->program);
  const process_completed *value = &got.value;
  *completed = (tb_completed){value->exit_code.some, value->exit_code.value, value->output, value->errors, value->truncated};
  return true;
}

/* ---- attachments ---- */

typedef struct { tb_str id, name, mime_type; uint64_t size; } attachment;
_Static_assert(sizeof(attachment) == sizeof(tb_attachment) && sizeof(attachment) == 32, "an attachment");
typedef struct { uint8_t is_error; union { tb_bytes value; attachment_error error; }; } attachment_data;
typedef struct { uint8_t is_error; union { tb_attachment value; attachment_error error; }; } attachment_made;

IMPORT("attachments", "all") void attachments_all(void *);
IMPORT("attachments", "read") void attachments_read(const char *, size_t, attachment_data *);
IMPORT("attachments", "create")
void attachments_create(const char *, size_t, const char *, size_t, const uint8_t *, size_t, attachment_made *);

size_t tb_attachments(tb_attachment **all) {
  ABI_LIST(tb_attachment) got;
  attachments_all(&got);
  *all = got.data;
  return got.len;
}

bool tb_attachment_read(tb_str id, tb_bytes *data) {
  attachment_data got;
  attachments_read(TWO(id), &got);
  if (got.is_error) return attachment_refused(&got.error, id);
  *data = got.value;
  return true;
}

bool tb_attachment_create(tb_str name, tb_str mime_type, tb_bytes data, tb_attachment *made) {
  attachment_made got;
  attachments_create(TWO(name), TWO(mime_type), TWO(data), &got);
  if (got.is_error) return attachment_refused(&got.error, name);
  *made = got.value;
  return true;
}

/* ---- tool-invoke ---- */

typedef struct { tb_str name, description, input_schema; abi_option_str output_schema; } callable;
typedef struct { tb_str value; abi_option_str structured; uint8_t truncated; } invoked;
typedef struct { uint8_t is_error; union { invoked value; abi_tool_error error; }; } invoke_answer;
typedef struct { uint8_t is_error; union { ABI_LIST(invoke_answer) value; abi_tool_error error; }; } invoke_answers;
_Static_assert(sizeof(callable) == 36 && sizeof(tb_invocation) == 16, "calls of other tools");
_Static_assert(sizeof(invoke_answer) == 48 && sizeof(invoke_answers) == 48, "their results");

IMPORT("tool-invoke", "tools") void invoke_tools(void *);
IMPORT("tool-invoke", "invoke") void invoke_invoke(const tb_invocation *, size_t, invoke_answers *);

static tb_str text_of(abi_option_str text) { return text.some ? text.value : (tb_str){0}; }

/* The cost of a nested call belongs to that call. */
static tb_result nested_error(const abi_tool_error *error) {
  return tb_error_of(error->code, text_of(error->subject), error->message);
}

size_t tb_callables(tb_callable **all) {
  ABI_LIST(callable) got;
  invoke_tools(&got);
  *all = tb_alloc(got.len * sizeof **all);
  for (size_t at = 0; at < got.len; at++) {
    const callable *one = &got.data[at];
    (*all)[at] = (tb_callable){one->name, one->description, one->input_schema, text_of(one->output_schema)};
  }
  return got.len;
}

bool tb_invoke(const tb_invocation *calls, size_t count, tb_invoked **results) {
  invoke_answers got;
  invoke_invoke(calls, count, &got);
  if (got.is_error) {
    last_error = nested_error(&got.error);
    return false;
  }
  *results = tb_alloc(count * sizeof **results);
  for (size_t at = 0; at < count && at < got.value.len; at++) {
    const invoke_answer *one = &got.value.data[at];
    (*results)[at] = one->is_error
      ? (tb_invoked){nested_error(&one->error), tb_code_name(one->error.code), one->error.message, {0}, false}
      : (tb_invoked){{0}, NULL, one->value.value, text_of(one->value.structured), one->value.truncated};
  }
  return true;
}
