/* Formats texts. */

#include "toolbay.h"

void *memcpy(void *, const void *, size_t);

static void reserve(tb_buffer *to, size_t more) {
  if (to->capacity - to->len >= more) return;
  size_t capacity = to->capacity * 2 > to->len + more ? to->capacity * 2 : to->len + more + 64;
  char *data = tb_alloc(capacity);
  memcpy(data, to->data, to->len);
  to->data = data;
  to->capacity = capacity;
}

void tb_put_str(tb_buffer *to, tb_str text) {
  reserve(to, text.len);
  memcpy(to->data + to->len, text.data, text.len);
  to->len += text.len;
}

static void put_char(tb_buffer *to, char one) { tb_put_str(to, (tb_str){&one, 1}); }

static void put_unsigned(tb_buffer *to, uint64_t number, unsigned base) {
  char digits[20];
  size_t at = sizeof digits;
  do digits[--at] = "0123456789abcdef"[number % base];
  while (number /= base);
  tb_put_str(to, (tb_str){digits + at, sizeof digits - at});
}

static void put_signed(tb_buffer *to, int64_t number) {
  if (number < 0) put_char(to, '-');
  put_unsigned(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10);
}

/* The length of the first character, or 0 if it is invalid. */
static size_t character(tb_bytes data) {
  unsigned char first = data.data[0];
  if (first < 0x80) return 1;
  size_t len = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (len == 0 || len > data.len) return 0;
  for (size_t at = 1; at < len; at++)
    if ((data.data[at] & 0xc0) != 0x80) return 0;
  /* Overlong, half of a surrogate pair, or beyond Unicode. */
  unsigned char second = data.data[1];
  bool bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90)
    || (first == 0xf4 && second > 0x8f);
  return bad ? 0 : len;
}

bool tb_is_utf8(tb_bytes data) {
  while (data.len > 0) {
    size_t len = character(data);
    if (len == 0) return false;
    data = (tb_bytes){data.data + len, data.len - len};
  }
  return true;
}

tb_str tb_utf8(tb_bytes data) {
  if (tb_is_utf8(data)) return (tb_str){(const char *)data.data, data.len};
  tb_buffer made = {0};
  while (data.len > 0) {
    size_t len = character(data);
    tb_put_str(&made, len ? (tb_str){(const char *)data.data, len} : TB_STR("\xef\xbf\xbd"));
    len += len == 0;
    data = (tb_bytes){data.data + len, data.len - len};
  }
  return tb_done(&made);
}

/* The shortest decimal that parses as the same number. Infinities become null, because JSON has none. */
static void put_double(tb_buffer *to, double number) {
  if (number != number || number - number != 0) { tb_put_str(to, TB_STR("null")); return; }
  if (number < 0) { put_char(to, '-'); number = -number; }
  if (number == (double)(uint64_t)number && number < 9007199254740992.0) { put_unsigned(to, (uint64_t)number, 10); return; }
  int exponent = 0;
  double scaled = number;
  while (scaled >= 10) { scaled /= 10; exponent++; }
  while (scaled < 1) { scaled *= 10; exponent--; }
  for (int digits = 1; digits <= 17; digits++) {
    uint64_t whole = 0;
    double rest = scaled;
    for (int at = 0; at < digits; at++) {
      unsigned digit = (unsigned)rest;
      whole = whole * 10 + digit;
      rest = (rest - digit) * 10;
    }
    if (rest >= 5) whole++;
    tb_buffer made = {0};
    put_unsigned(&made, whole, 10);
    size_t len = made.len;
    int power = exponent + (len > (size_t)digits); /* rounded up to one digit more */
    tb_buffer text = {0};
    if (power >= -5 && power < 0) {
      tb_put_str(&text, TB_STR("0."));
      for (int zero = -1; zero > power; zero--) put_char(&text, '0');
      tb_put_str(&text, (tb_str){made.data, len});
    } else if (power >= 0 && power < (int)len - 1) {
      tb_put_str(&text, (tb_str){made.data, (size_t)power + 1});
      put_char(&text, '.');
      tb_put_str(&text, (tb_str){made.data + power + 1, len - (size_t)power - 1});
    } else {
      put_char(&text, made.data[0]);
      if (len > 1) put_char(&text, '.');
      tb_put_str(&text, (tb_str){made.data + 1, len - 1});
      put_char(&text, 'e');
      put_signed(&text, power);
    }
    if (digits == 17 || tb_as_double(tb_done(&text)) == number) { tb_put_str(to, tb_done(&text)); return; }
  }
}

static void put_quoted(tb_buffer *to, tb_str text) {
  put_char(to, '"');
  for (size_t at = 0; at < text.len; at++) {
    unsigned char one = (unsigned char)text.data[at];
    if (one == '"' || one == '\\') { put_char(to, '\\'); put_char(to, (char)one); }
    else if (one == '\n') tb_put_str(to, TB_STR("\\n"));
    else if (one == '\r') tb_put_str(to, TB_STR("\\r"));
    else if (one == '\t') tb_put_str(to, TB_STR("\\t"));
    else if (one < 0x20) { tb_put_str(to, one < 0x10 ? TB_STR("\\u000") : TB_STR("\\u00")); put_unsigned(to, one, 16); }
    else put_char(to, (char)one);
  }
  put_char(to, '"');
}

static void put_all(tb_buffer *to, const char *format, va_list args) {
  for (; *format; format++) {
    if (*format != '%') { put_char(to, *format); continue; }
    switch (*++format) {
      case 's': tb_put_str(to, tb_str_of(va_arg(args, const char *))); break;
      case 'v': tb_put_str(to, va_arg(args, tb_str)); break;
      case 'q': put_quoted(to, va_arg(args, tb_str)); break;
      case 'd': put_signed(to, va_arg(args, int)); break;
      case 'l': put_signed(to, va_arg(args, int64_t)); break;
      case 'u': put_unsigned(to, va_arg(args, size_t), 10); break;
      case 'x': put_unsigned(to, va_arg(args, unsigned), 16); break;
      case 'f': put_double(to, va_arg(args, double)); break;
      case 'c': put_char(to, (char)va_arg(args, int)); break;
      case '%': put_char(to, '%'); break;
      default: __builtin_trap(); /* a conversion that there is not */
    }
  }
}

void tb_put(tb_buffer *to, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put_all(to, format, args);
  va_end(args);
}

tb_str tb_vformat(const char *format, va_list args) {
  tb_buffer made = {0};
  put_all(&made, format, args);
  return tb_done(&made);
}

tb_str tb_format(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tb_str made = tb_vformat(format, args);
  va_end(args);
  return made;
}
