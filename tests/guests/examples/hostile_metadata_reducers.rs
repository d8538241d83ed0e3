//! `list-reducers` returns invalid names: duplicates, itself, an empty name.

guest::tools!(guest::tool("own", |_| guest::text("own")));

guest::reducers!(["own", "own", "", "a\nb", "*"], |_, _| None);
