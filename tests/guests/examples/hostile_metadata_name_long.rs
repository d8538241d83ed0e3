//! A name of 65 characters.

guest::metadata!(|| vec![guest::definition("x".repeat(65))]);
