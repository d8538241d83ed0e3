//! Batches of 64 calls of an echo in an Extism plugin, on two threads; prints calls a second for each line of stdin.
//!
//! `extism-batch PLUGIN reused|fresh`: an instance for each thread, which keeps what calls leave behind, or one for each
//! call, compiled once.

use std::error::Error;
use std::io::BufRead;
use std::time::{Duration, Instant};

use extism::{CompiledPlugin, Manifest, Plugin, PluginBuilder, Wasm};

const SPAN: Duration = Duration::from_millis(500);
const BATCH: usize = 64;
const THREADS: usize = 2;
const TEXT: &str = "Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [plugin, how] = args.as_slice() else { return Err("extism-batch PLUGIN reused|fresh".into()) };
    let manifest = Manifest::new([Wasm::data(std::fs::read(plugin)?)]);
    let compiled = CompiledPlugin::new(PluginBuilder::new(manifest).with_wasi(true))?;
    let fresh = how == "fresh";
    for line in std::io::stdin().lock().lines() {
        line?;
        let rate = std::thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(|| round(&compiled, fresh)));
            threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum::<Result<f64, _>>()
        });
        println!("{}", rate?);
    }
    Ok(())
}

fn round(compiled: &CompiledPlugin, fresh: bool) -> Result<f64, extism::Error> {
    let call = format!(r#"{{"request":{{"name":"echo","arguments":{{"text":"{TEXT}"}}}},"context":{{"id":1,"_meta":{{}}}}}}"#);
    let mut plugin = Plugin::new_from_compiled(compiled)?;
    let (start, mut done) = (Instant::now(), 0usize);
    while start.elapsed() < SPAN {
        for _ in 0..BATCH {
            if fresh {
                plugin = Plugin::new_from_compiled(compiled)?;
            }
            let answer: String = plugin.call("call_tool", &call)?;
            assert!(answer.contains("Lorem ipsum"), "{answer}");
        }
        done += BATCH;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
