//! The smallest component, to measure the host. It does not even parse JSON.

guest::tools_by!(|| vec![guest::definition("echo")], |_, args| guest::text(args));
