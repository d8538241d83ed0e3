//! `list-tools` describes its environment: the result must be the same everywhere and always.

use std::time::{Instant, SystemTime};

use guest::wasip2::random::random::get_random_u64;

guest::metadata!(|| {
    let seen = format!(
        "{:?} {:?} {} {:?} {:?} {:?}",
        SystemTime::now(),
        Instant::now(),
        get_random_u64(),
        std::env::vars_os().collect::<Vec<_>>(),
        std::env::args_os().collect::<Vec<_>>(),
        std::fs::read_dir("/").map(Iterator::count),
    );
    println!("{seen}");
    vec![guest::ToolDef { description: seen, ..guest::definition("env") }]
});
