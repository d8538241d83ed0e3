/* Reads JSON in place. The host has validated it. */

#include "toolbay.h"

static const tb_json NONE = {0};

static size_t blank(tb_json in, size_t at) {
  while (at < in.len && (in.data[at] == ' ' || in.data[at] == '\n' || in.data[at] == '\r' || in.data[at] == '\t')) at++;
  return at;
}

/* The position after the value at `at`. */
static size_t behind(tb_json in, size_t at) {
  int depth = 0;
  bool text = false;
  for (; at < in.len; at++) {
    char one = in.data[at];
    if (text) {
      if (one == '\\') at++;
      else if (one == '"') { text = false; if (depth == 0) return at + 1; }
    } else if (one == '"') text = true;
    else if (one == '{' || one == '[') depth++;
    else if (one == '}' || one == ']') { if (depth == 0) return at; if (--depth == 0) return at + 1; }
    else if (depth == 0 && (one == ',' || one == ':' || one == ' ' || one == '\n' || one == '\r' || one == '\t')) return at;
  }
  return at;
}

static tb_json part(tb_json in, size_t *at) {
  size_t start = blank(in, *at);
  *at = behind(in, start);
  return (tb_json){in.data + start, *at - start};
}

tb_json tb_get(tb_json object, const char *key) {
  size_t at = blank(object, 0);
  if (at >= object.len || object.data[at] != '{') return NONE;
  for (at++;;) {
    tb_json name = part(object, &at);
    if (name.len == 0) return NONE;
    at = blank(object, at) + 1; /* the colon */
    tb_json value = part(object, &at);
    if (tb_equal(tb_as_str(name), key)) return value;
    at = blank(object, at);
    if (at >= object.len || object.data[at] != ',') return NONE;
    at++;
  }
}

tb_json tb_at(tb_json array, size_t index) {
  size_t at = blank(array, 0);
  if (at >= array.len || array.data[at] != '[') return NONE;
  for (at++;; index--) {
    tb_json value = part(array, &at);
    if (value.len == 0) return NONE;
    if (index == 0) return value;
    at = blank(array, at);
    if (at >= array.len || array.data[at] != ',') return NONE;
    at++;
  }
}

static unsigned hex(const char *digits) {
  unsigned number = 0;
  for (int at = 0; at < 4; at++) {
    char one = digits[at];
    number = number * 16 + (unsigned)(one <= '9' ? one - '0' : (one | 32) - 'a' + 10);
  }
  return number;
}

static size_t put_utf8(char *to, unsigned code) {
  if (code < 0x80) { to[0] = (char)code; return 1; }
  if (code < 0x800) { to[0] = (char)(0xc0 | code >> 6); to[1] = (char)(0x80 | (code & 63)); return 2; }
  size_t len = code < 0x10000 ? 3 : 4;
  to[0] = (char)(len == 3 ? 0xe0 | code >> 12 : 0xf0 | code >> 18);
  for (size_t at = 1; at < len; at++) to[at] = (char)(0x80 | (code >> 6 * (len - 1 - at) & 63));
  return len;
}

tb_str tb_as_str(tb_json value) {
  if (value.len < 2 || value.data[0] != '"') return NONE;
  bool plain = true;
  for (size_t at = 1; at < value.len - 1; at++) plain &= value.data[at] != '\\';
  if (plain) return (tb_str){value.data + 1, value.len - 2};
  char *made = tb_alloc(value.len);
  size_t len = 0;
  for (size_t at = 1; at < value.len - 1; at++) {
    if (value.data[at] != '\\') { made[len++] = value.data[at]; continue; }
    char one = value.data[++at];
    if (one != 'u') {
      made[len++] = one == 'n' ? '\n' : one == 't' ? '\t' : one == 'r' ? '\r' : one == 'b' ? '\b' : one == 'f' ? '\f' : one;
      continue;
    }
    unsigned code = hex(value.data + at + 1);
    at += 4;
    if (code >= 0xd800 && code < 0xdc00 && at + 6 < value.len && value.data[at + 1] == '\\' && value.data[at + 2] == 'u') {
      unsigned low = hex(value.data + at + 3);
      if (low >= 0xdc00 && low < 0xe000) { code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00); at += 6; }
    }
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd; /* half of a pair */
    len += put_utf8(made + len, code);
  }
  return (tb_str){made, len};
}

static bool is_number(tb_json value) {
  return value.len > 0 && (value.data[0] == '-' || (value.data[0] >= '0' && value.data[0] <= '9'));
}

/* Exact for up to 15 digits and small exponents, else nearly. */
double tb_as_double(tb_json value) {
  if (!is_number(value)) return 0;
  size_t at = value.data[0] == '-';
  double number = 0;
  int scale = 0, exponent = 0;
  for (bool fraction = false; at < value.len; at++) {
    char one = value.data[at];
    if (one == '.') { fraction = true; continue; }
    if (one < '0' || one > '9') break;
    number = number * 10 + (one - '0');
    scale -= fraction;
  }
  if (at < value.len && (value.data[at] | 32) == 'e') {
    bool minus = value.data[++at] == '-';
    if (minus || value.data[at] == '+') at++;
    for (; at < value.len && exponent < 9999; at++) exponent = exponent * 10 + (value.data[at] - '0');
    if (minus) exponent = -exponent;
  }
  exponent += scale;
  double power = 1, base = 10;
  for (int left = exponent < 0 ? -exponent : exponent; left > 0; left >>= 1, base *= base)
    if (left & 1) power *= base;
  number = exponent < 0 ? number / power : number * power;
  return value.data[0] == '-' ? -number : number;
}

static int64_t as_int(tb_json value) {
  bool minus = value.data[0] == '-';
  uint64_t number = 0, most = (uint64_t)INT64_MAX + minus;
  for (size_t at = minus; at < value.len; at++) {
    char one = value.data[at];
    if (one < '0' || one > '9') { /* 1e3 and 1.0 are integers, too */
      double whole = tb_as_double(value);
      return whole >= 9.2e18 ? INT64_MAX : whole <= -9.2e18 ? INT64_MIN : (int64_t)whole;
    }
    uint64_t digit = (uint64_t)(one - '0');
    if (number > (most - digit) / 10) return minus ? INT64_MIN : INT64_MAX;
    number = number * 10 + digit;
  }
  return (int64_t)(minus ? 0 - number : number);
}

tb_str tb_get_str(tb_json object, const char *key, const char *otherwise) {
  tb_json value = tb_get(object, key);
  return value.len > 0 && value.data[0] == '"' ? tb_as_str(value) : tb_str_of(otherwise);
}

int64_t tb_get_int(tb_json object, const char *key, int64_t otherwise) {
  tb_json value = tb_get(object, key);
  return is_number(value) ? as_int(value) : otherwise;
}

double tb_get_double(tb_json object, const char *key, double otherwise) {
  tb_json value = tb_get(object, key);
  return is_number(value) ? tb_as_double(value) : otherwise;
}

bool tb_get_bool(tb_json object, const char *key, bool otherwise) {
  tb_json value = tb_get(object, key);
  return tb_equal(value, "true") ? true : tb_equal(value, "false") ? false : otherwise;
}
