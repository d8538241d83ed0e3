#include "toolbay.h"

enum { LINES = 20 };

/* Keeps the first and last lines. Pure: it has no host to ask. A text without data leaves the result as it is. */
static tb_str ends(const tb_reducible *result) {
  tb_str text = result->value;
  size_t lines = 1, first = 0, last = text.len;
  for (size_t at = 0; at < text.len; at++) lines += text.data[at] == '\n';
  if (lines <= 2 * LINES) return (tb_str){0};
  for (size_t seen = 0; seen < LINES; first++) seen += text.data[first] == '\n';
  for (size_t seen = 0; seen < LINES; seen += text.data[last] == '\n') last--;
  return tb_format("%v[%u lines left out]%v", (tb_str){text.data, first}, lines - 2 * LINES, (tb_str){text.data + last, text.len - last});
}

/* The tool whose results it takes, by its full name if it is another plugin's. */
static const tb_reducer reducers[] = {{"shell__terminal", "Keeps the first and last lines of a long result.", ends}};
TB_REDUCERS(reducers)
TB_ABOUT(.name = "{{name}}", .version = "0.1.0", .description = "Shortens results of a tool")
