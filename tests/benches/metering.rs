//! The cost of bounding guests that compute: epochs, which end them at their deadline and make them yield, and
//! fuel, which counts their instructions.
//!
//! `cargo bench --bench all -- metering`. The same component in engines with and without each, native code from the
//! same source, and the library under a policy with and without fuel.

use std::hint::black_box;

use crate::figures::{keep, rounds, timed};
use crate::floor::{BareStore, HeldInstance};
use crate::library::LibraryBench;

#[path = "../guests/src/compute.rs"]
#[allow(unreachable_pub, reason = "guests have it as a module of a library")]
mod compute;

/// A tool of the guest, its arguments, and the native function.
type MeteredWork = (&'static str, &'static str, &'static str, fn());

const WORK: [MeteredWork; 3] = [
    ("fib", "fib(24), recursive", r#"{"n":24}"#, || {
        black_box(compute::fib(black_box(24)));
    }),
    ("sha256", "SHA-256 of 100 000 bytes", r#"{"n":100000}"#, || {
        black_box(compute::sha256_of_zeros(black_box(100_000)));
    }),
    ("json", "JSON of 75 KB, five times", r#"{"n":600}"#, || {
        let records = compute::records(black_box(600));
        black_box((0..5).map(|_| compute::members(&records)).sum::<usize>());
    }),
];

const SIDES: [(&str, HeldInstance); 4] = [
    ("neither", HeldInstance { by_epochs: false, by_fuel: false }),
    ("epochs", HeldInstance { by_epochs: true, by_fuel: false }),
    ("fuel", HeldInstance { by_epochs: false, by_fuel: true }),
    ("both", HeldInstance { by_epochs: true, by_fuel: true }),
];

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bare = SIDES.map(|(_, held)| BareStore::held(guest_artifacts::BENCH_COMPUTE, held, |_| {}));
    let library = ["", "[limits]\nfuel = \"none\"\n"]
        .map(|policy| LibraryBench::new(&runtime, guest_artifacts::BENCH_COMPUTE, policy));
    println!(
        "\n| least of many, µs | machine's code | neither | epochs | fuel | both | `call_all` | the same, `fuel = \"none\"` |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (tool, what, args, native) in WORK {
        let (mut least, called) = ([f64::MAX; 7], format!("bench__{tool}"));
        for _ in 0..rounds(60) {
            let mut side = 0;
            let mut next = |took: f64| {
                least[side] = took.min(least[side]);
                side += 1;
            };
            next(timed(native));
            for bare in &bare {
                next(timed(|| drop(runtime.block_on(bare.tool(tool, args, true)))));
            }
            for library in &library {
                next(timed(|| drop(runtime.block_on(library.call(&called, args)))));
            }
        }
        let neither = least[1];
        let cells: Vec<String> =
            least.iter().map(|took| format!("{took:.0} ({:.2})", took / neither)).collect();
        println!("| {what} | {} |", cells.join(" | "));
        keep(&format!("metering_{tool}_epochs"), least[2] / neither);
        keep(&format!("metering_{tool}_both"), least[4] / neither);
        keep(&format!("metering_{tool}_call"), least[5] / neither);
        keep(&format!("metering_{tool}_call_by_time"), least[6] / neither);
    }
}
