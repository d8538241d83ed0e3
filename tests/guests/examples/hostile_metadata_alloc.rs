//! `list-tools` allocates until memory runs out.

guest::metadata!(|| loop {
    std::hint::black_box(vec![1u8; 1 << 20].leak());
});
