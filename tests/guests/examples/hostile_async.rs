//! Attacks that asynchronous functions make possible.

wit_bindgen::generate!({
    inline: r#"
        package stranger:abuse;

        world abuse {
            import wasi:clocks/monotonic-clock@0.3.0;
            import wasi:cli/stdout@0.3.0;

            export never: async func();
            export wait-forever: async func();
            export spin: async func();
            export yield-forever: async func();
            export allocate: async func(mebibytes: u32) -> u32;
            export many-streams: async func();
            export many-tasks: async func();
            export hold-stream: async func() -> string;
            export work-after-return: async func() -> string;
            export repeat: async func(text: string, times: u32) -> string;
            export trap: async func();
            export write: async func(mebibytes: u32);
        }

        package wasi:clocks@0.3.0 {
            interface types {
                type duration = u64;
            }
            interface monotonic-clock {
                use types.{duration};
                wait-for: async func(how-long: duration);
            }
        }

        package wasi:cli@0.3.0 {
            interface types {
                enum error-code { io, illegal-byte-sequence, pipe }
            }
            interface stdout {
                use types.{error-code};
                write-via-stream: func(data: stream<u8>) -> future<result<_, error-code>>;
            }
        }
    "#,
    generate_all,
});

use std::future::{Future, poll_fn};
use std::task::Poll;

use wasi::cli::stdout;
use wasi::clocks::monotonic_clock::wait_for;

const LONG: u64 = 3_600_000_000_000;

struct Abuse;

impl Guest for Abuse {
    async fn never() {
        let (writer, mut reader) = wit_stream::new::<u8>();
        reader.next().await;
        drop(writer);
    }

    async fn wait_forever() {
        wait_for(LONG).await;
    }

    async fn spin() {
        loop {
            std::hint::spin_loop();
        }
    }

    async fn yield_forever() {
        loop {
            wit_bindgen::yield_async().await;
        }
    }

    async fn allocate(mebibytes: u32) -> u32 {
        wait_for(1).await;
        let block = vec![1u8; (mebibytes as usize) << 20];
        std::hint::black_box(&block).iter().map(|byte| u32::from(*byte)).sum()
    }

    async fn many_streams() {
        loop {
            std::mem::forget(wit_stream::new::<u8>());
        }
    }

    async fn many_tasks() {
        let mut running = Vec::new();
        loop {
            let mut one = Box::pin(wait_for(LONG));
            poll_fn(|cx| {
                let _ = one.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
            running.push(one);
        }
    }

    async fn hold_stream() -> String {
        let (mut writer, reader) = wit_stream::new();
        std::mem::forget(stdout::write_via_stream(reader));
        writer.write_all(b"held\n".to_vec()).await;
        std::mem::forget(writer);
        "held".to_owned()
    }

    async fn work_after_return() -> String {
        let mut later = Box::pin(wait_for(LONG));
        poll_fn(|cx| {
            let _ = later.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
        std::mem::forget(later);
        "returned".to_owned()
    }

    async fn repeat(text: String, times: u32) -> String {
        text.repeat(times as usize)
    }

    async fn trap() {
        wait_for(1).await;
        panic!("as asked");
    }

    async fn write(mebibytes: u32) {
        let (mut writer, reader) = wit_stream::new();
        let written = stdout::write_via_stream(reader);
        for _ in 0..mebibytes {
            writer.write_all(vec![b'x'; 1 << 20]).await;
        }
        drop(writer);
        written.await.expect("stdout takes everything");
    }
}

export!(Abuse);
