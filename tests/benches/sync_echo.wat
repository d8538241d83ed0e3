;; The smallest component with a function from text to text, to measure the host without a guest's language.
(component
  (core module $libc
    (memory (export "memory") 1)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
      global.get $free
      (global.set $free (i32.add (global.get $free) (local.get $size)))))
  (core module $echo
    (import "libc" "memory" (memory 1))
    (func (export "echo") (param $text i32) (param $size i32) (result i32)
      (i32.store (i32.const 16) (local.get $text))
      (i32.store (i32.const 20) (local.get $size))
      i32.const 16))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
  (core instance $echo (instantiate $echo (with "libc" (instance $libc))))
  (alias core export $echo "echo" (core func $core_echo))
  (type $of_echo (func (param "text" string) (result string)))
  (func $lifted (type $of_echo)
    (canon lift (core func $core_echo) (memory (core memory $memory)) (realloc (core func $realloc))))
  (export "echo" (func $lifted)))
