/* Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`. */

typedef struct { uint8_t error; union { tb_str text; uint64_t bytes; }; } attachment_error;

static bool attachment_refused(const attachment_error *error, tb_str name) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), tb_format("no access to the attachment `%v`: %v", name, error->text));
    case 1: /* not-found */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("not-found"), tb_format("no attachment `%v`", name));
    case 2: /* too-large */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("too-large"), tb_format("the attachment `%v` is too large: %u bytes", name, (size_t)error->bytes));
    default: /* other */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("the attachment `%v`: %v", name, error->text));
  }
}

typedef struct { uint8_t error; union { tb_str text; uint64_t bytes; }; } file_error;

static bool file_refused(const file_error *error, tb_str path) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), error->text);
    case 1: /* not-found */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("not-found"), tb_format("`%v` does not exist", path));
    case 2: /* stale */
      return refused(TB_CODE_STALE_WRITE, path, tb_format("`%v` changed since it was read: read it again, then write", path));
    case 3: /* too-large */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("too-large"), tb_format("`%v` is too large: %u bytes", path, (size_t)error->bytes));
    default: /* other */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, error->text);
  }
}

typedef struct { uint8_t error; tb_str text; } http_error;

static bool http_refused(const http_error *error, tb_str url) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), tb_format("no access to `%v`: %v", url, error->text));
    case 1: /* invalid-request */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("the request to `%v` is invalid: %v", url, error->text));
    case 2: /* timeout */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("timeout"), tb_format("`%v` did not answer in time", url));
    case 3: /* cancelled */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("cancelled"), TB_STR("the call was cancelled"));
    default: /* transport */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("transport"), tb_format("`%v`: %v", url, error->text));
  }
}

typedef struct { uint8_t error; union { tb_str text; uint64_t bytes; }; } kv_error;

static bool kv_refused(const kv_error *error, tb_str key) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), tb_format("no access to the store: %v", error->text));
    case 1: /* too-large */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("too-large"), tb_format("the value of `%v` is too large: %u bytes; the operator can raise `kv_value_bytes`", key, (size_t)error->bytes));
    case 2: /* quota-exceeded */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("quota"), TB_STR("the store of the plugin is full: remove something, or ask the operator to raise `kv_bytes` or `kv_keys`"));
    case 3: /* not-a-number */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("`%v` does not hold a number", key));
    default: /* other */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("the store failed: %v", error->text));
  }
}

typedef struct { uint8_t error; tb_str text; } process_error;

static bool process_refused(const process_error *error, tb_str program) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), tb_format("`%v` may not be run: %v", program, error->text));
    case 1: /* not-found */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("missing-binary"), tb_format("no program `%v` here", error->text));
    case 2: /* timeout */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("timeout"), tb_format("`%v` did not end in time", program));
    case 3: /* cancelled */
      return refused(TB_CODE_EXECUTION_FAILED, TB_STR("cancelled"), TB_STR("the call was cancelled"));
    default: /* other */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("`%v`: %v", program, error->text));
  }
}

typedef struct { uint8_t error; tb_str text; } secret_error;

static bool secret_refused(const secret_error *error, tb_str name) {
  switch (error->error) {
    case 0: /* denied */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("denied"), tb_format("no access to the secret `%v`: %v", name, error->text));
    case 1: /* not-found */
      return refused(TB_CODE_NOT_AVAILABLE, TB_STR("missing-secret"), tb_format("the secret `%v` is not set", name));
    default: /* other */
      return refused(TB_CODE_EXECUTION_FAILED, (tb_str){0}, tb_format("the secret `%v`: %v", name, error->text));
  }
}
