//! `list-reducers` answers what it must not: duplicates, itself, nothing.

guest::tools!(guest::tool("own", |_| guest::text("own")));

guest::reducers!(["own", "own", "", "a\nb", "*"], |_, _| None);
