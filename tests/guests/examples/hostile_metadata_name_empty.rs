//! A name of nothing.

guest::metadata!(|| vec![guest::definition("")]);
