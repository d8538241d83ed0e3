//! `list-tools` takes memory until there is no more.

guest::metadata!(|| loop {
    std::hint::black_box(vec![1u8; 1 << 20].leak());
});
