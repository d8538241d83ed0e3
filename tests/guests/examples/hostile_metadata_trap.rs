//! `list-tools` panics.

guest::metadata!(|| panic!("a panic in `list-tools`"));
