/* The exports of the contract, made from the author's macros, and the results of tools. */

#include "abi.h"

/* ---- Results of tools. ---- */

static tb_result answer(void) {
  tb_answer *made = tb_alloc(sizeof *made);
  __builtin_memset(made, 0, sizeof *made);
  return (tb_result){made};
}

static tb_str object_of(tb_json json) {
  return json.len > 0 && json.data[0] == '{' ? json : tb_format("{\"result\":%v}", json);
}

static tb_result output_of(tb_str value) {
  tb_result made = answer();
  made.answer->output.value = tb_utf8(tb_bytes_of(value));
  return made;
}

tb_result tb_text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tb_str text = tb_vformat(format, args);
  va_end(args);
  return output_of(text);
}

tb_result tb_rendered(tb_str text, tb_json json) {
  tb_result made = output_of(text);
  made.answer->output.structured = (abi_option_str){1, object_of(json)};
  return made;
}

tb_result tb_structured(tb_json json) { return tb_rendered(json, json); }

static tb_result with_block(tb_result result, abi_block block) {
  abi_blocks *content = &result.answer->output.content;
  abi_block *all = tb_alloc((content->len + 1) * sizeof *all);
  for (size_t at = 0; at < content->len; at++) all[at] = content->data[at];
  all[content->len] = block;
  content->data = all;
  content->len++;
  return result;
}

tb_result tb_with_text(tb_result result, tb_str text) {
  return with_block(result, (abi_block){.body = {.block_case = BLOCK_TEXT, .text = tb_utf8(tb_bytes_of(text))}});
}

static tb_result with_blob(tb_result result, uint8_t block_case, tb_bytes data, const char *mime_type) {
  return with_block(result, (abi_block){.body = {.block_case = block_case, .blob = {data, tb_str_of(mime_type)}}});
}

tb_result tb_with_image(tb_result result, tb_bytes data, const char *mime_type) {
  return with_blob(result, BLOCK_IMAGE, data, mime_type);
}

tb_result tb_with_audio(tb_result result, tb_bytes data, const char *mime_type) {
  return with_blob(result, BLOCK_AUDIO, data, mime_type);
}

tb_result tb_with_link(tb_result result, tb_link link) {
  abi_link made = {
    .uri = tb_str_of(link.uri), .name = tb_str_of(link.name), .title = abi_some(link.title),
    .description = abi_some(link.description), .mime_type = abi_some(link.mime_type), .size = abi_not_0(link.size),
  };
  return with_block(result, (abi_block){.body = {.block_case = BLOCK_LINK, .link = made}});
}

static tb_result with_embedded(tb_result result, const char *uri, const char *mime_type, uint8_t body_case, tb_bytes body) {
  abi_embedded made = {.uri = tb_str_of(uri), .mime_type = abi_some(mime_type), .body_case = body_case, .body = body};
  return with_block(result, (abi_block){.body = {.block_case = BLOCK_EMBEDDED, .embedded = made}});
}

tb_result tb_with_embedded_text(tb_result result, const char *uri, const char *mime_type, tb_str text) {
  return with_embedded(result, uri, mime_type, RESOURCE_TEXT, tb_bytes_of(tb_utf8(tb_bytes_of(text))));
}

tb_result tb_with_embedded(tb_result result, const char *uri, const char *mime_type, tb_bytes data) {
  return with_embedded(result, uri, mime_type, RESOURCE_BLOB, data);
}

tb_result tb_with_annotations(tb_result result, tb_annotations annotations) {
  abi_blocks *content = &result.answer->output.content;
  if (result.answer->is_error || content->len == 0) return tb_failed(NULL, "there is no block to annotate");
  static const uint8_t AUDIENCES[] = {ROLE_USER, ROLE_ASSISTANT};
  abi_annotations made = {.last_modified = abi_some(annotations.last_modified)};
  made.audience.data = (uint8_t *)AUDIENCES + !annotations.user;
  made.audience.len = (size_t)annotations.user + annotations.assistant;
  made.priority.some = annotations.priority != 0;
  made.priority.value = annotations.priority;
  content->data[content->len - 1].annotations.some = 1;
  content->data[content->len - 1].annotations.value = made;
  return result;
}

tb_result tb_with_cost(tb_result result, double usd) {
  abi_option_f64 cost = {1, usd};
  if (result.answer->is_error) result.answer->error.cost_usd = cost;
  else result.answer->output.cost_usd = cost;
  return result;
}

tb_result tb_with_meta(tb_result result, tb_json object) {
  result.answer->output.meta = (abi_option_str){1, object};
  return result;
}

tb_result tb_error_of(uint8_t code, tb_str subject, tb_str message) {
  tb_result made = answer();
  made.answer->is_error = 1;
  made.answer->error = (abi_tool_error){.code = code, .message = tb_utf8(tb_bytes_of(message)), .subject = {subject.data != NULL, subject}};
  return made;
}

const char *tb_code_name(uint8_t code) {
  static const char *const NAMES[] = {TB_CODE_NAMES};
  return NAMES[code & 3];
}

#define ERROR(name, code) \
  tb_result name(const char *subject, const char *format, ...) { \
    va_list args; \
    va_start(args, format); \
    tb_str message = tb_vformat(format, args); \
    va_end(args); \
    return tb_error_of(code, tb_str_of(subject), message); \
  }
ERROR(tb_input_error, TB_CODE_INPUT_INVALID)
ERROR(tb_not_available, TB_CODE_NOT_AVAILABLE)
ERROR(tb_failed, TB_CODE_EXECUTION_FAILED)
ERROR(tb_stale, TB_CODE_STALE_WRITE)

/* ---- Interface `tools`. ---- */

static const char NO_ARGUMENTS[] = TB_JSON({"type":"object","additionalProperties":false,"properties":{}});

static abi_capability capability(const tb_need *need) {
  const char *target = need->target;
  /* A kind without a target needs a value in its place. */
  if (!target) target = TB_SWITCH_TARGET(tb_str_of(need->kind));
  return (abi_capability){tb_str_of(need->kind), tb_str_of(target), need->optional, abi_some(need->reason)};
}

static abi_tool_def definition(const tb_tool *tool) {
  abi_tool_def made = {
    .name = tb_str_of(tool->name), .title = abi_some(tool->title), .description = tb_str_of(tool->description),
    .input_schema = tb_str_of(tool->input ? tool->input : NO_ARGUMENTS), .output_schema = abi_some(tool->output),
    .toolset = abi_some(tool->toolset), .traits = (uint8_t)tool->traits,
    .max_result_chars = {tool->max_result_chars > 0, tool->max_result_chars},
    .timeout_ms = {tool->timeout_ms > 0, tool->timeout_ms}, .meta = abi_some(tool->meta),
  };
  made.tags.data = tb_alloc(sizeof(tb_str) * TB_COUNT(tool->tags));
  for (size_t at = 0; at < TB_COUNT(tool->tags) && tool->tags[at]; at++)
    made.tags.data[made.tags.len++] = tb_str_of(tool->tags[at]);
  made.capabilities.data = tb_alloc(sizeof(abi_capability) * TB_COUNT(tool->needs));
  for (size_t at = 0; at < TB_COUNT(tool->needs) && tool->needs[at].kind; at++)
    made.capabilities.data[made.capabilities.len++] = capability(&tool->needs[at]);
  return made;
}

void *tb_list_tools(const tb_tool *tools, size_t count) {
  static ABI_LIST(abi_tool_def) list;
  list.data = tb_alloc(count * sizeof(abi_tool_def));
  list.len = count;
  for (size_t at = 0; at < count; at++) list.data[at] = definition(&tools[at]);
  return &list;
}

void *tb_call(const tb_tool *tools, size_t count, char *name, size_t name_len, char *args, size_t args_len) {
  tb_str called = {name, name_len};
  for (size_t at = 0; at < count; at++)
    if (tb_equal(called, tools[at].name)) return tools[at].run((tb_json){args, args_len}).answer;
  return tb_not_available("unknown-tool", "no tool `%v` in this plugin", called).answer;
}

/* ---- Interface `about`. ---- */

void *tb_describe(const tb_about *about) {
  static abi_plugin_info info;
  info = (abi_plugin_info){
    .name = tb_str_of(about->name), .version = tb_str_of(about->version), .description = abi_some(about->description),
    .authors = abi_some(about->authors), .license = abi_some(about->license), .homepage = abi_some(about->homepage),
    .source = abi_some(about->source), .config_schema = abi_some(about->config_schema), .meta = abi_some(about->reusable ? "{\"reusable\":true}" : NULL),
  };
  return &info;
}

/* ---- Interface `availability`. ---- */

void *tb_check(const char *(*check)(tb_str tool), char *tool, size_t tool_len) {
  static struct { uint8_t is_error; tb_str reason; } checked;
  const char *reason = check((tb_str){tool, tool_len});
  checked.is_error = reason != NULL;
  checked.reason = tb_str_of(reason);
  return &checked;
}

/* ---- Interface `reducers`. ---- */

void *tb_list_reducers(const tb_reducer *reducers, size_t count) {
  static ABI_LIST(abi_reducer_def) list;
  list.data = tb_alloc(count * sizeof(abi_reducer_def));
  list.len = count;
  for (size_t at = 0; at < count; at++)
    list.data[at] = (abi_reducer_def){tb_str_of(reducers[at].tool_name), abi_some(reducers[at].description)};
  return &list;
}

void *tb_reduce(const tb_reducer *reducers, size_t count, void *params) {
  static struct { uint8_t some; tb_answer answer; } reduced;
  const struct { tb_answer input; abi_reduce_context context; } *given = params;
  tb_reducible result = {
    .tool_name = given->context.tool_name, .args = given->context.args, .turn_count = given->context.turn_count,
    .budget_chars = given->context.budget_chars,
  };
  if (given->input.is_error) {
    result.error_code = tb_code_name(given->input.error.code);
    result.value = given->input.error.message;
  } else {
    result.value = given->input.output.value;
    if (given->input.output.structured.some) result.structured = given->input.output.structured.value;
  }
  for (size_t at = 0; at < count; at++) {
    if (!tb_equal(result.tool_name, reducers[at].tool_name)) continue;
    tb_str text = reducers[at].reduce(&result);
    if (!text.data) break;
    reduced.some = 1;
    reduced.answer = given->input;
    if (given->input.is_error) reduced.answer.error.message = text;
    else reduced.answer.output.value = text;
  }
  return &reduced;
}
