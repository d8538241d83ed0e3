//! `list-tools` exits the program.

guest::metadata!(|| std::process::exit(0));
