/* Shows the bytes of a file: a hex dump of a part, and a checksum of the whole. */

#include "toolbay.h"

enum { LINE = 16, PIECE = 1 << 16 };

/* CRC-32 (polynomial 0xedb88320), half a byte at a time. */
static const uint32_t HALF[16] = {
  0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
  0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

static void put_hex(tb_buffer *to, uint32_t number, int digits) {
  while (digits-- > 0) tb_put(to, "%x", number >> 4 * digits & 15);
}

static tb_result hex_dump(tb_json args) {
  tb_bytes data;
  tb_stat stat;
  uint64_t offset = (uint64_t)tb_get_int(args, "offset", 0), most = (uint64_t)tb_get_int(args, "bytes", 256);
  if (!tb_file_read_part(tb_get_str(args, "path", ""), offset, most, &data, &stat)) return tb_host_error();
  if (offset > stat.size) return tb_input_error("/offset", "the file ends at %l", (int64_t)stat.size);
  tb_buffer all = {0};
  for (size_t line = 0; line < data.len; line += LINE) {
    put_hex(&all, (uint32_t)(offset + line), 8);
    for (size_t at = line; at < line + LINE; at++) {
      tb_put(&all, at % 8 ? " " : "  ");
      if (at < data.len) put_hex(&all, data.data[at], 2);
      else tb_put(&all, "  ");
    }
    tb_put(&all, "  ");
    for (size_t at = line; at < line + LINE && at < data.len; at++)
      tb_put(&all, "%c", data.data[at] >= 0x20 && data.data[at] < 0x7f ? data.data[at] : '.');
    tb_put(&all, "\n");
  }
  tb_put(&all, "%l of %l bytes", (int64_t)data.len, (int64_t)stat.size);
  return tb_text("%v", tb_done(&all));
}

static tb_result checksum(tb_json args) {
  tb_str path = tb_get_str(args, "path", "");
  uint32_t crc = 0xffffffff;
  uint64_t done = 0;
  tb_stat stat;
  size_t mark = tb_mark();
  do { /* piece by piece, so that a file may be larger than the memory of a call */
    tb_bytes piece;
    if (!tb_file_read_part(path, done, PIECE, &piece, &stat)) return tb_host_error();
    if (tb_cancelled()) return tb_failed("cancelled", "the call was cancelled");
    for (size_t at = 0; at < piece.len; at++) {
      crc = crc >> 4 ^ HALF[(crc ^ piece.data[at]) & 15];
      crc = crc >> 4 ^ HALF[(crc ^ piece.data[at] >> 4) & 15];
    }
    done += piece.len;
    if (piece.len == 0) break;
    tb_progress(100.0f * (float)done / (float)stat.size, "read %l of %l bytes", (int64_t)done, (int64_t)stat.size);
    tb_release(mark);
  } while (done < stat.size);
  tb_buffer hex = {0};
  put_hex(&hex, ~crc, 8);
  return tb_structured(tb_format("{\"crc32\":%q,\"bytes\":%l}", tb_done(&hex), (int64_t)done));
}

#define READS {{"fs-read", "$workspace/**", "reads the file you name", false}}

static const tb_tool tools[] = {
  {.name = "hex_dump", .description = "Show the bytes of a part of a file, in hexadecimal and as text.", .run = hex_dump,
   .toolset = "file", .traits = TB_READ_ONLY | TB_IDEMPOTENT | TB_CLOSED_WORLD | TB_UNTRUSTED_OUTPUT, .needs = READS,
   .input = TB_JSON({"type": "object", "additionalProperties": false, "required": ["path"], "properties": {
     "path": {"type": "string", "description": "Path of the file, below the workspace."},
     "offset": {"type": "integer", "description": "Where to begin.", "default": 0, "minimum": 0},
     "bytes": {"type": "integer", "description": "How many bytes.", "default": 256, "minimum": 1, "maximum": 16384}}})},
  {.name = "checksum", .description = "Compute the CRC-32 of a file.", .run = checksum, .toolset = "file",
   .traits = TB_READ_ONLY | TB_IDEMPOTENT | TB_CLOSED_WORLD, .needs = READS,
   .input = TB_JSON({"type": "object", "additionalProperties": false, "required": ["path"], "properties": {
     "path": {"type": "string", "description": "Path of the file, below the workspace."}}}),
   .output = TB_JSON({"type": "object", "required": ["crc32", "bytes"], "properties": {
     "crc32": {"type": "string"}, "bytes": {"type": "integer"}}})},
};
TB_TOOLS(tools)
TB_ABOUT(.name = "bytes", .version = "0.1.0", .description = "What a file is made of", .license = "Apache-2.0")
