//! `list-tools` returns 10,000 tools.

guest::metadata!(|| (0..10_000).map(|number| guest::definition(format!("tool_{number}"))).collect());
