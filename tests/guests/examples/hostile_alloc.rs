//! Allocates until memory runs out.

use guest::{Answer, Args, text, tool};

guest::tools!(tool("grow", grow), tool("reserve", reserve), tool("hold", hold), tool("refused", refused));

const MIB: usize = 1 << 20;

/// Allocates until the allocator fails, which aborts.
fn grow(_: &Args) -> Answer {
    loop {
        std::hint::black_box(vec![1u8; MIB].leak());
    }
}

/// Allocates until the allocator fails, survives, and returns the number of MiB.
fn reserve(_: &Args) -> Answer {
    let mut blocks = 0usize;
    loop {
        let mut block: Vec<u8> = Vec::new();
        if block.try_reserve_exact(MIB).is_err() {
            return text(blocks.to_string());
        }
        block.resize(MIB, 1);
        std::hint::black_box(block.leak());
        blocks += 1;
    }
}

/// Allocates `mib` MiB at once and frees them.
fn hold(args: &Args) -> Answer {
    let block = std::hint::black_box(vec![1u8; args.number("mib", 16) as usize * MIB]);
    text(block.len().to_string())
}

/// Requests more memory than exists, then ends by `then`: `die` at once, `grow` by less and die, or call a function by a wrong `signature`.
fn refused(args: &Args) -> Answer {
    let mut block: Vec<u8> = Vec::new();
    assert!(block.try_reserve_exact(1 << 30).is_err(), "a gibibyte was had");
    match args.text("then", "die") {
        "die" => panic!("it died of that"),
        "grow" => {
            std::hint::black_box(vec![1u8; 4 * MIB].leak());
            panic!("it died of something else")
        }
        _ => {
            let wrong = unsafe { std::mem::transmute::<fn(u64) -> u64, fn(f32, f64) -> u64>(one) };
            text(std::hint::black_box(wrong)(1.0, 1.0).to_string())
        }
    }
}

fn one(n: u64) -> u64 {
    n
}
