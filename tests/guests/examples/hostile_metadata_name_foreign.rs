//! A name that claims to be a tool of another plugin.

guest::metadata!(|| vec![guest::definition("text__word_count")]);
