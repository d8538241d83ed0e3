//! `list-tools` ends the program.

guest::metadata!(|| std::process::exit(0));
