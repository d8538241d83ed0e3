//! `list-tools` waits.

guest::metadata!(|| loop {
    std::thread::sleep(std::time::Duration::from_secs(3600));
});
