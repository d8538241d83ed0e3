;; `sync_echo.wat` as an asynchronous function of WASI 0.3. It returns its argument at once.
(component
  (core module $libc
    (memory (export "memory") 1)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
      global.get $free
      (global.set $free (i32.add (global.get $free) (local.get $size)))))
  (core module $echo
    (import "" "task.return" (func $return (param i32 i32)))
    (func (export "echo") (param $text i32) (param $size i32) (result i32)
      (call $return (local.get $text) (local.get $size))
      ;; The code of a task that has ended.
      i32.const 0)
    (func (export "callback") (param i32 i32 i32) (result i32)
      unreachable))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
  (core func $return (canon task.return (result string) (memory (core memory $memory))))
  (core instance $echo (instantiate $echo (with "" (instance (export "task.return" (func $return))))))
  (alias core export $echo "echo" (core func $core_echo))
  (alias core export $echo "callback" (core func $callback))
  (type $of_echo (func async (param "text" string) (result string)))
  (func $lifted (type $of_echo)
    (canon lift (core func $core_echo) async (callback (core func $callback))
      (memory (core memory $memory)) (realloc (core func $realloc))))
  (export "echo" (func $lifted)))
