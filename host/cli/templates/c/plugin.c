#include "toolbay.h"

static tb_result hello(tb_json args) {
  tb_str name = tb_get_str(args, "name", "");
  int64_t marks = tb_get_int(args, "marks", 1);
  if (name.data[0] == ' ') return tb_input_error("/name", "the name is blank");
  tb_buffer text = {0};
  tb_put(&text, "Hello, %v", name);
  while (marks-- > 0) tb_put(&text, "!");
  return tb_text("%v", tb_done(&text));
}

static const tb_tool tools[] = {{
  .name = "hello",
  /* The description by which a model chooses the tool. */
  .description = "Greet somebody.",
  /* Claims, not permissions; without any the host assumes the worst. */
  .traits = TB_READ_ONLY | TB_IDEMPOTENT | TB_CLOSED_WORLD,
  /* The host checks arguments against this before anything runs. */
  .input = TB_JSON({"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
    "name": {"type": "string", "description": "Who is greeted.", "minLength": 1},
    "marks": {"type": "integer", "description": "Exclamation marks.", "default": 1, "minimum": 0, "maximum": 5}}}),
  /* `toolbay test` tries these. */
  .meta = TB_JSON({"examples": [
    {"args": {"name": "world", "marks": 2}, "value": "Hello, world!!"},
    {"args": {"name": " "}, "error": "input-invalid"}]}),
  .run = hello,
}};
TB_TOOLS(tools)
TB_ABOUT(.name = "{{name}}", .version = "0.1.0", .description = "Says hello")
