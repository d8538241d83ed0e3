//! A component of WASI 0.3: asynchronous functions that await the clock, and random bytes.

wit_bindgen::generate!({
    inline: r#"
        package stranger:waiter;

        world waiter {
            import wasi:clocks/monotonic-clock@0.3.0;
            import wasi:clocks/system-clock@0.3.0;
            import wasi:random/random@0.3.0;

            record ticket { number: u32, name: string }

            export echo: async func(text: string) -> string;
            export wait: async func(milliseconds: u64) -> result<string, string>;
            /// Issues two tickets at the same time, and waits for the slower one.
            export tickets: async func(names: list<string>) -> list<ticket>;
            export now: async func() -> s64;
            export number: async func() -> u64;
            export plain: func(a: u32, b: u32) -> u32;
            export stream-of: async func() -> stream<u8>;
        }

        package wasi:clocks@0.3.0 {
            interface types {
                type duration = u64;
            }
            interface monotonic-clock {
                use types.{duration};
                wait-for: async func(how-long: duration);
            }
            interface system-clock {
                record instant { seconds: s64, nanoseconds: u32 }
                now: func() -> instant;
            }
        }

        package wasi:random@0.3.0 {
            interface random {
                get-random-u64: func() -> u64;
            }
        }
    "#,
    generate_all,
});

use wasi::clocks::monotonic_clock::wait_for;
use wasi::clocks::system_clock;
use wasi::random::random::get_random_u64;
use wit_bindgen::rt::async_support::StreamReader;

struct Waiter;

impl Guest for Waiter {
    async fn echo(text: String) -> String {
        text
    }

    async fn wait(milliseconds: u64) -> Result<String, String> {
        if milliseconds == 0 {
            return Err("there is nothing to wait for".to_owned());
        }
        wait_for(milliseconds * 1_000_000).await;
        Ok("waited".to_owned())
    }

    async fn tickets(names: Vec<String>) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for (number, name) in (1..).zip(names) {
            wait_for(1000).await;
            tickets.push(Ticket { number, name });
        }
        tickets
    }

    async fn now() -> i64 {
        system_clock::now().seconds
    }

    async fn number() -> u64 {
        get_random_u64()
    }

    fn plain(a: u32, b: u32) -> u32 {
        a + b
    }

    async fn stream_of() -> StreamReader<u8> {
        wit_stream::new().1
    }
}

export!(Waiter);
