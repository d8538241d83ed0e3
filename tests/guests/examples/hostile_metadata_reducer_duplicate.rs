//! Two reducers for one tool.

guest::tools!(guest::tool("own", |_| guest::text("own")));

guest::reducers!(["own", "own"], |_, _| None);
