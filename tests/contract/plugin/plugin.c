/* The plugin that the contract suite is run against, in C. `api_contract.rs` is what it is compared with. */

#include "toolbay.h"

#define OBJECT(...) TB_JSON({"type": "object", "additionalProperties": false, __VA_ARGS__})

static tb_result add(tb_json args) {
  int64_t sum;
  if (__builtin_add_overflow(tb_get_int(args, "a", 0), tb_get_int(args, "b", 1), &sum))
    return tb_input_error("/b", "the sum is too large");
  return tb_structured(tb_format("{\"sum\":%l}", sum));
}

static tb_result announce(tb_json args) {
  (void)args;
  tb_progress_to(TB_FOR_LOG, 10, "for the log");
  tb_progress(50, "for the user");
  tb_progress_to(TB_FOR_DASHBOARD, -1, "for the operator");
  return tb_text("");
}

static tb_result attach(tb_json args) {
  tb_attachment made, *all;
  tb_bytes text = tb_bytes_of(tb_get_str(args, "text", ""));
  if (!tb_attachment_create(tb_get_str(args, "name", ""), TB_STR("text/plain"), text, &made)) return tb_host_error();
  tb_buffer names = {0};
  size_t number = tb_attachments(&all);
  for (size_t at = 0; at < number; at++) tb_put(&names, at ? "+%v" : "%v", all[at].name);
  return tb_text("%v %v %l, %v", made.id, made.mime_type, (int64_t)made.size, tb_done(&names));
}

static tb_result attached(tb_json args) {
  tb_bytes text;
  if (!tb_attachment_read(tb_get_str(args, "id", ""), &text)) return tb_host_error();
  return tb_text("%v", tb_utf8(text));
}

static const uint8_t BYTES[] = {1, 2, 255};

static tb_result blocks(tb_json args) {
  (void)args;
  tb_bytes bytes = {BYTES, sizeof BYTES};
  tb_result made = tb_with_text(tb_text("text"), TB_STR("more"));
  made = tb_with_annotations(made, (tb_annotations){.user = true, .priority = 0.5f});
  made = tb_with_audio(tb_with_image(made, bytes, "image/png"), bytes, "audio/wav");
  made = tb_with_annotations(made, (tb_annotations){.user = true, .assistant = true, .last_modified = "2026-01-02T03:04:05Z"});
  made = tb_with_link(made, (tb_link){"https://a.example/x", "x", "X", "It.", "text/html", 7});
  made = tb_with_embedded_text(made, "note://1", "text/plain", TB_STR("größer"));
  return tb_with_embedded(made, "note://2", NULL, bytes);
}

static tb_result count(tb_json args) {
  int64_t sum;
  if (!tb_kv_increment(TB_OF_PLUGIN, tb_get_str(args, "key", ""), tb_get_int(args, "by", 0), &sum)) return tb_host_error();
  return tb_text("%l", sum);
}

static tb_result draw(tb_json args) {
  tb_buffer all = {0};
  for (int64_t left = tb_get_int(args, "count", 0); left > 0; left--)
    tb_put(&all, left > 1 ? "%l " : "%l", (int64_t)tb_random_u64());
  return tb_text("%v", tb_done(&all));
}

static tb_result crash(tb_json args) { return tb_failed(NULL, "%v", tb_get_str(args, "message", "")); }

static tb_result delegate(tb_json args) {
  tb_str text = tb_get_str(args, "text", "");
  const tb_invocation calls[] = {
    {tb_get_str(args, "tool", ""), tb_format("{\"text\":%q}", text)},
    {TB_STR("contract__refuse"), tb_format("{\"code\":\"stale-write\",\"message\":%q,\"subject\":\"a\",\"cost\":1}", text)},
    {TB_STR("contract__add"), TB_STR("{\"a\":1}")},
  };
  tb_callable *callables;
  tb_invoked *results;
  size_t number = tb_callables(&callables);
  if (!tb_invoke(calls, TB_COUNT(calls), &results)) return tb_host_error();
  tb_buffer all = {0};
  for (size_t at = 0; at < number; at++) tb_put(&all, at ? "+%v" : "%v", callables[at].name);
  for (size_t at = 0; at < TB_COUNT(calls); at++)
    tb_put(&all, at ? ", %s%s%v" : ": %s%s%v", results[at].error_code, results[at].error_code ? " " : "", results[at].value);
  return tb_text("%v", tb_done(&all));
}

static tb_result echo(tb_json args) { return tb_text("%v", tb_get_str(args, "text", "")); }
static tb_result nothing(tb_json args) { return (void)args, tb_text(""); }
static tb_result sometimes(tb_json args) { return (void)args, tb_text("here"); }

static tb_result facts(tb_json args) {
  (void)args;
  uint32_t turn;
  tb_str session = tb_session_id(), scope = tb_as_str(tb_attribute("memory-scope")), none = TB_STR("none");
  return tb_text("budget %u, session %v, turn %v, scope %v", (size_t)tb_budget_chars(), session.len ? session : none,
                 tb_turn(&turn) ? tb_format("%u", (size_t)turn) : none, scope.len ? scope : none);
}

static tb_result fetch(tb_json args) {
  tb_pair header = {TB_STR("x-test"), TB_STR("yes")};
  tb_request request = {.url = tb_get_str(args, "url", ""), .headers = &header, .header_count = 1};
  tb_response response;
  if (!tb_fetch(&request, &response)) return tb_host_error();
  return tb_text("%d %v", (int)response.status, tb_utf8(response.body));
}

static tb_result hog(tb_json args) {
  (void)args;
  for (;;) *(volatile char *)tb_alloc(1 << 20) = 1;
}

static tb_result kinds(tb_json args) {
  tb_json place = tb_get(args, "place"), words = tb_get(args, "words");
  tb_str where = tb_get_str(place, "name", "nowhere");
  if (tb_get(place, "zip").len && !tb_equal(tb_get(place, "zip"), "null"))
    where = tb_format("%v %l", where, tb_get_int(place, "zip", 0));
  tb_buffer joined = {0};
  for (size_t at = 0; tb_at(words, at).data; at++) tb_put(&joined, at ? "+%v" : "%v", tb_as_str(tb_at(words, at)));
  return tb_text("%v, %v words, %v, %v, %l, %s, %s", tb_get_str(args, "word", ""), tb_done(&joined),
                 tb_get_str(args, "mode", ""), where, tb_get_int(args, "count", 3),
                 tb_get_double(args, "ratio", 0.5) > 1 ? "more" : "less", tb_get_bool(args, "flag", false) ? "true" : "false");
}

static tb_result lines(tb_json args) {
  tb_buffer all = {0};
  for (int64_t line = 1; line <= tb_get_int(args, "count", 0); line++) tb_put(&all, "line %l\n", line);
  return tb_text("%v", tb_done(&all));
}

static tb_result list(tb_json args) {
  tb_entry *entries;
  size_t number;
  if (!tb_file_list(tb_get_str(args, "path", ""), &entries, &number)) return tb_host_error();
  tb_buffer all = {0};
  for (size_t at = 0; at < number; at++) tb_put(&all, at ? ",%v" : "%v", entries[at].name);
  return tb_text("%v", tb_done(&all));
}

static tb_result note(tb_json args) {
  tb_str text = tb_get_str(args, "text", "");
  tb_pair fields[] = {{TB_STR("kind"), TB_STR("note")}, {TB_STR("letters"), tb_format("%u", text.len)}};
  tb_log_with(TB_WARN, fields, TB_COUNT(fields), "%v", text);
  return tb_text("");
}

static tb_result read(tb_json args) {
  tb_str text;
  if (!tb_file_read_text(tb_get_str(args, "path", ""), &text)) return tb_host_error();
  return tb_text("%v", text);
}

static tb_result refuse(tb_json args) {
  tb_str code = tb_get_str(args, "code", ""), message = tb_get_str(args, "message", "");
  tb_str text = tb_get_str(args, "subject", NULL);
  const char *subject = text.data ? tb_format("%v%c", text, 0).data : NULL;
  tb_result error = tb_equal(code, "input-invalid") ? tb_input_error(subject, "%v", message)
    : tb_equal(code, "not-available") ? tb_not_available(subject, "%v", message)
    : tb_equal(code, "stale-write") ? tb_stale(subject, "%v", message)
    : tb_failed(subject, "%v", message);
  double cost = tb_get_double(args, "cost", -1);
  return cost < 0 ? error : tb_with_cost(error, cost);
}

static tb_result remember(tb_json args) {
  tb_str key = tb_get_str(args, "key", ""), text = tb_get_str(args, "text", ""), *keys;
  tb_bytes before, value = tb_bytes_of(text);
  bool same;
  size_t number;
  if (!tb_kv_get(TB_OF_PLUGIN, key, &before) || !tb_kv_set(TB_OF_PLUGIN, key, value, 0)
      || !tb_kv_replace(TB_OF_PLUGIN, key, value, value, &same)
      || !tb_kv_keys(TB_OF_PLUGIN, TB_STR(""), (tb_str){0}, 10, &keys, &number)) return tb_host_error();
  tb_buffer all = {0};
  tb_put_str(&all, before.data ? tb_utf8(before) : TB_STR("nothing"));
  tb_put(&all, ", %s, ", same ? "true" : "false");
  for (size_t at = 0; at < number; at++) tb_put(&all, at ? "+%v" : "%v", keys[at]);
  return tb_text("%v", tb_done(&all));
}

static tb_result rich(tb_json args) {
  (void)args;
  tb_result made = tb_rendered(TB_STR("text"), TB_STR("[1,\"zwei\"]"));
  made = tb_with_image(made, (tb_bytes){BYTES, sizeof BYTES}, "image/png");
  made = tb_with_link(made, (tb_link){.uri = "https://a.example/x", .name = "x"});
  return tb_with_meta(tb_with_cost(made, 0.25), TB_STR("{\"a\":1}"));
}

static tb_result run(tb_json args) {
  tb_str words[8];
  tb_command command = {.program = tb_get_str(args, "program", ""), .args = words};
  tb_json given = tb_get(args, "args");
  for (; command.arg_count < 8 && tb_at(given, command.arg_count).data; command.arg_count++)
    words[command.arg_count] = tb_as_str(tb_at(given, command.arg_count));
  tb_completed done;
  if (!tb_run(&command, &done)) return tb_host_error();
  while (done.output.len > 0 && done.output.data[done.output.len - 1] == '\n') done.output.len--;
  return tb_text("%d: %v", done.exited ? done.exit_code : -1, tb_utf8(done.output));
}

static tb_result secret(tb_json args) {
  tb_str name = tb_get_str(args, "name", ""), text;
  bool revealed;
  if (!tb_secret(tb_format("%v%c", name, 0).data, &text, &revealed)) return tb_host_error();
  return tb_text(revealed ? "the value" : "a placeholder");
}

static tb_result setting(tb_json args) {
  tb_str key = tb_get_str(args, "key", "");
  tb_json value = tb_config(tb_format("%v%c", key, 0).data);
  if (!value.data) return tb_not_available("config", "the setting `%v` is missing", key);
  return tb_text("%v", tb_as_str(value));
}

static tb_result spin(tb_json args) {
  (void)args;
  for (volatile int at = 0;; at++) {}
}

static tb_result steps(tb_json args) {
  int64_t number = tb_get_int(args, "count", 0);
  for (int64_t step = 1; step <= number; step++)
    tb_progress(100.0f * (float)step / (float)number, "step %l of %l", step, number);
  return tb_text("done");
}

static tb_result unannotated(tb_json args) {
  (void)args;
  return tb_with_annotations(tb_text("text"), (tb_annotations){.priority = 1});
}

static tb_result wait(tb_json args) {
  (void)args;
  tb_progress(-1, "waiting");
  while (!tb_cancelled()) {}
  return tb_failed("cancelled", "the call was cancelled");
}

static tb_result write(tb_json args) {
  tb_stat stat;
  tb_bytes text = tb_bytes_of(tb_get_str(args, "text", ""));
  if (!tb_file_write(tb_get_str(args, "path", ""), text, tb_get_str(args, "version", ""), &stat)) return tb_host_error();
  return tb_text("%l bytes", (int64_t)stat.size);
}

static const tb_tool tools[] = {
  {.name = "add", .description = "Add two numbers.", .traits = TB_READ_ONLY, .run = add,
   .input = OBJECT("properties": {"a": {"type": "integer", "description": "The first."},
     "b": {"type": "integer", "description": "The second.", "default": 1}}, "required": ["a"]),
   .output = TB_JSON({"type": "object", "description": "The sum of two numbers.",
     "properties": {"sum": {"type": "integer", "description": "It."}}, "required": ["sum"]})},
  {.name = "announce", .description = "Tell each audience how far it is.", .run = announce},
  {.name = "attach", .description = "Store a text for the caller, and say what the turn has.", .run = attach,
   .needs = {{"attachments", "read text/plain", NULL, true}, {"attachments", "create text/plain", NULL, true}},
   .input = OBJECT("properties": {"name": {"type": "string"}, "text": {"type": "string"}}, "required": ["name", "text"])},
  {.name = "attached", .description = "Read a text of the caller.", .run = attached,
   .needs = {{"attachments", "read text/plain", NULL, true}},
   .input = OBJECT("properties": {"id": {"type": "string"}}, "required": ["id"])},
  {.name = "blocks", .description = "Return a block of each kind.", .run = blocks},
  {.name = "count", .description = "Count up.", .run = count, .needs = {{"kv", "plugin", NULL, true}},
   .input = OBJECT("properties": {"key": {"type": "string"}, "by": {"type": "integer"}}, "required": ["key", "by"])},
  {.name = "crash", .description = "Fail as code of others fails.", .run = crash,
   .input = OBJECT("properties": {"message": {"type": "string"}}, "required": ["message"])},
  {.name = "delegate", .description = "Call other tools.", .run = delegate,
   .needs = {{"invoke", "contract__echo", NULL, true}, {"invoke", "contract__refuse", NULL, true}},
   .input = OBJECT("properties": {"tool": {"type": "string"}, "text": {"type": "string"}}, "required": ["tool", "text"])},
  {.name = "draw", .description = "Draw random numbers.", .run = draw, .needs = {{"random", "bytes", NULL, true}},
   .input = OBJECT("properties": {"count": {"type": "integer"}}, "required": ["count"])},
  {.name = "echo", .title = "Echo", .description = "Return a text as it is.", .toolset = "contract", .tags = {"a", "b"},
   .traits = TB_READ_ONLY | TB_IDEMPOTENT | TB_CLOSED_WORLD, .max_result_chars = 50000, .timeout_ms = 20000, .run = echo,
   .meta = TB_JSON({"example.org/hint": {"levels": [1, "zwei"]}}),
   .input = OBJECT("properties": {"text": {"type": "string", "description": "The text."}}, "required": ["text"])},
  {.name = "facts", .description = "Say where the call is.", .run = facts},
  {.name = "fetch", .description = "Fetch a page.", .run = fetch, .needs = {{"net", "http://*", NULL, true}, {"net", "http://127.0.0.1:1", NULL, true}},
   .input = OBJECT("properties": {"url": {"type": "string"}}, "required": ["url"])},
  {.name = "hog", .description = "Take memory for ever.", .run = hog},
  {.name = "kinds", .description = "Take arguments of every kind.", .traits = TB_READ_ONLY, .run = kinds,
   .input = OBJECT("properties": {
     "word": {"type": "string", "description": "A text that is not long.", "minLength": 1, "maxLength": 20},
     "words": {"type": "array", "items": {"type": "string"}, "description": "Texts."},
     "mode": {"type": "string", "enum": ["fast", "slow"], "description": "How."},
     "place": {"type": ["object", "null"], "description": "Where it is.", "properties": {
       "name": {"type": "string", "description": "Its name."}, "zip": {"type": ["integer", "null"]}}, "required": ["name"]},
     "count": {"type": "integer", "default": 3, "minimum": 1, "maximum": 10},
     "ratio": {"type": "number", "default": 0.5}, "flag": {"type": "boolean", "default": false}},
     "required": ["word", "words", "mode"])},
  {.name = "lines", .description = "Return this many lines.", .run = lines,
   .input = OBJECT("properties": {"count": {"type": "integer"}}, "required": ["count"])},
  {.name = "list", .description = "List a folder.", .run = list, .needs = {{"fs-read", "$workspace/**", NULL, false}},
   .input = OBJECT("properties": {"path": {"type": "string"}}, "required": ["path"])},
  {.name = "note", .description = "Write a line for the operator.", .run = note,
   .input = OBJECT("properties": {"text": {"type": "string"}}, "required": ["text"])},
  {.name = "nothing", .description = "Return nothing.", .run = nothing},
  {.name = "read", .description = "Read a file.", .run = read,
   .needs = {{"fs-read", "$workspace/**", "reads the file you name", false}},
   .input = OBJECT("properties": {"path": {"type": "string"}}, "required": ["path"])},
  {.name = "refuse", .description = "Say no.", .run = refuse,
   .input = OBJECT("properties": {"code": {"type": "string", "description": "How.",
     "enum": ["input-invalid", "not-available", "execution-failed", "stale-write"]}, "message": {"type": "string"},
     "subject": {"type": ["string", "null"]}, "cost": {"type": ["number", "null"]}}, "required": ["code", "message"])},
  {.name = "remember", .description = "Remember a text, and say what was there.", .run = remember,
   .needs = {{"kv", "tool", NULL, true}, {"kv", "plugin", NULL, true}},
   .input = OBJECT("properties": {"key": {"type": "string"}, "text": {"type": "string"}}, "required": ["key", "text"])},
  {.name = "rich", .description = "Return all that a result can have.", .run = rich},
  {.name = "run", .description = "Run a program.", .run = run, .needs = {{"process", "echo *", NULL, true}},
   .input = OBJECT("properties": {"program": {"type": "string"}, "args": {"type": "array", "items": {"type": "string"}}},
     "required": ["program", "args"])},
  {.name = "secret", .description = "Use a secret.", .run = secret, .needs = {{"secret", "KEY", NULL, true}},
   .input = OBJECT("properties": {"name": {"type": "string"}}, "required": ["name"])},
  {.name = "setting", .description = "Return a setting.", .run = setting,
   .input = OBJECT("properties": {"key": {"type": "string"}}, "required": ["key"])},
  {.name = "sometimes", .description = "Be there only with a setting.", .run = sometimes},
  {.name = "spin", .description = "Compute for ever.", .run = spin},
  {.name = "steps", .description = "Report each step.", .run = steps,
   .input = OBJECT("properties": {"count": {"type": "integer"}}, "required": ["count"])},
  {.name = "unannotated", .description = "Annotate a block that there is not.", .run = unannotated},
  {.name = "wait", .description = "Wait until the caller gives up.", .run = wait},
  {.name = "write", .description = "Write a file.", .run = write,
   .needs = {{"fs-read", "$workspace/**", NULL, false}, {"fs-write", "$workspace/**", NULL, false}},
   .input = OBJECT("properties": {"path": {"type": "string"}, "text": {"type": "string"},
     "version": {"type": ["string", "null"]}}, "required": ["path", "text"])},
};
TB_TOOLS(tools)

static tb_str first_line(const tb_reducible *result) {
  for (size_t at = 0; at < result->value.len; at++)
    if (result->value.data[at] == '\n') return tb_format("%v…", (tb_str){result->value.data, at});
  return (tb_str){0};
}

static const tb_reducer reducers[] = {{"lines", "Keeps the first line.", first_line}};
TB_REDUCERS(reducers)

static const char *check(tb_str tool) {
  tb_str *keys;
  return tb_equal(tool, "sometimes") && tb_config_keys(&keys) == 0 ? "it needs a setting" : NULL;
}
TB_AVAILABLE(check)
TB_ABOUT(.name = "contract", .version = "0.1.0", .description = "What the contract suite is run against", .reusable = true,
         .config_schema = TB_JSON({"type": "object", "description": "The settings of the operator.",
           "additionalProperties": false, "properties": {
             "greeting": {"type": ["string", "null"], "description": "Said first."}}}))
