//! A program of WASI 0.3. Its first argument selects its behaviour.

wit_bindgen::generate!({
    inline: r#"
        package stranger:program;

        world program {
            import wasi:cli/environment@0.3.0;
            import wasi:cli/exit@0.3.0;
            import wasi:cli/stdin@0.3.0;
            import wasi:cli/stdout@0.3.0;
            import wasi:cli/stderr@0.3.0;
            export wasi:cli/run@0.3.0;
        }

        package wasi:cli@0.3.0 {
            interface types {
                enum error-code { io, illegal-byte-sequence, pipe }
            }
            interface environment {
                get-arguments: func() -> list<string>;
            }
            interface exit {
                exit-with-code: func(status-code: u8);
            }
            interface stdin {
                use types.{error-code};
                read-via-stream: func() -> tuple<stream<u8>, future<result<_, error-code>>>;
            }
            interface stdout {
                use types.{error-code};
                write-via-stream: func(data: stream<u8>) -> future<result<_, error-code>>;
            }
            interface stderr {
                use types.{error-code};
                write-via-stream: func(data: stream<u8>) -> future<result<_, error-code>>;
            }
            interface run {
                run: async func() -> result;
            }
        }
    "#,
    generate_all,
});

use wasi::cli::{environment, exit, stderr, stdin, stdout};

struct Program;

impl exports::wasi::cli::run::Guest for Program {
    async fn run() -> Result<(), ()> {
        let args = environment::get_arguments();
        let rest = || args.iter().skip(2).cloned().collect::<Vec<_>>();
        match args.get(1).map(String::as_str).unwrap_or_default() {
            "print" => print(rest().join(" ").into_bytes()).await,
            "cat" => {
                let (text, _) = stdin::read_via_stream();
                print(text.collect().await).await;
            }
            "flood" => print(vec![b'x'; rest()[0].parse().unwrap_or_default()]).await,
            "exit" => {
                let (mut writer, reader) = wit_stream::new();
                let written = stderr::write_via_stream(reader);
                writer.write_all(b"it went wrong".to_vec()).await;
                drop(writer);
                written.await.map_err(drop)?;
                exit::exit_with_code(rest()[0].parse().unwrap_or_default());
            }
            _ => return Err(()),
        }
        Ok(())
    }
}

async fn print(bytes: Vec<u8>) {
    let (mut writer, reader) = wit_stream::new();
    let written = stdout::write_via_stream(reader);
    writer.write_all(bytes).await;
    drop(writer);
    written.await.expect("stdout takes everything");
}

export!(Program);
