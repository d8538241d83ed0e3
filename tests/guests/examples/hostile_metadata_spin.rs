//! `list-tools` never answers.

guest::metadata!(|| loop {
    std::hint::black_box(0);
});
