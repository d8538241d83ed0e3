//! A name with a dot.

guest::metadata!(|| vec![guest::definition("other.tool")]);
