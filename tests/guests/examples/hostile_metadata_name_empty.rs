//! An empty name.

guest::metadata!(|| vec![guest::definition("")]);
