//! A reducer for an impossible tool.

guest::tools!(guest::tool("own", |_| guest::text("own")));

guest::reducers!(["a\n\u{1b}[2J"], |_, _| None);
