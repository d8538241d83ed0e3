/* Memory and texts. An instance lives for one call, so memory is never freed. */

#include "toolbay.h"

extern unsigned char __heap_base;
static uintptr_t next_free, last_block;

static void *allocate(size_t align, size_t bytes) {
  if (next_free == 0) next_free = (uintptr_t)&__heap_base;
  uintptr_t start = (next_free + align - 1) & ~(uintptr_t)(align - 1);
  uintptr_t end = start + bytes, have = (uintptr_t)__builtin_wasm_memory_size(0) << 16;
  if (end < start) __builtin_trap();
  if (end > have) {
    size_t pages = (end - have + 0xffff) >> 16;
    /* Doubles the memory, to grow rarely; if that fails, grows by what is needed. */
    size_t more = have >> 16 > pages ? have >> 16 : pages;
    if (__builtin_wasm_memory_grow(0, more) == (size_t)-1 && __builtin_wasm_memory_grow(0, pages) == (size_t)-1)
      __builtin_trap(); /* the host says which limit it was */
  }
  last_block = start;
  next_free = end;
  return (void *)start;
}

void *tb_alloc(size_t bytes) { return allocate(8, bytes); }

size_t tb_mark(void) { return (size_t)allocate(8, 0); }

void tb_release(size_t mark) {
  next_free = mark;
  last_block = 0;
}

/* The allocator that the host calls for its results. */
TB_EXPORT("cabi_realloc") void *cabi_realloc(void *old, size_t old_len, size_t align, size_t len) {
  if (len == 0) return (void *)align;
  if (old && (uintptr_t)old == last_block) {
    next_free = last_block;
    return allocate(align, len);
  }
  void *made = allocate(align, len);
  if (old) __builtin_memcpy(made, old, old_len < len ? old_len : len);
  return made;
}

/* The compiler may call these. They must not be compiled to calls of themselves: `-fno-builtin`. */
__attribute__((weak)) void *memcpy(void *to, const void *from, size_t len) {
  char *out = to;
  const char *in = from;
  for (size_t at = 0; at < len; at++) out[at] = in[at];
  return to;
}

__attribute__((weak)) void *memmove(void *to, const void *from, size_t len) {
  char *out = to;
  const char *in = from;
  if (out < in) return memcpy(to, from, len);
  while (len-- > 0) out[len] = in[len];
  return to;
}

__attribute__((weak)) void *memset(void *to, int byte, size_t len) {
  char *out = to;
  for (size_t at = 0; at < len; at++) out[at] = (char)byte;
  return to;
}

__attribute__((weak)) int memcmp(const void *a, const void *b, size_t len) {
  const unsigned char *left = a, *right = b;
  for (size_t at = 0; at < len; at++)
    if (left[at] != right[at]) return left[at] < right[at] ? -1 : 1;
  return 0;
}

__attribute__((weak)) size_t strlen(const char *text) {
  size_t len = 0;
  while (text[len]) len++;
  return len;
}

tb_str tb_str_of(const char *text) {
  size_t len = 0;
  while (text && text[len]) len++;
  return (tb_str){text, len};
}

bool tb_equal(tb_str a, const char *b) {
  tb_str other = tb_str_of(b);
  return a.len == other.len && memcmp(a.data, other.data, a.len) == 0;
}

tb_bytes tb_bytes_of(tb_str text) { return (tb_bytes){(const uint8_t *)text.data, text.len}; }
