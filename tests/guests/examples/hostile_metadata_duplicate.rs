//! Two tools with one name.

guest::metadata!(|| vec![guest::definition("twice"), guest::definition("once"), guest::definition("twice")]);
