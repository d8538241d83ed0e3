//! Never answers.

use guest::tool;

guest::tools!(tool("spin", |_| {
    let mut turn = 0u64;
    loop {
        turn = std::hint::black_box(turn.wrapping_add(1));
    }
}));
