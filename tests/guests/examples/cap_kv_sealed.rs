//! Tries to use state during metadata queries and reductions, where there is none.

use guest::host::kv::{self, KvError, Scope};
use guest::{ErrorCode, definition, fail};

guest::tools_by!(
    || {
        let mut tool = definition("shown");
        tool.description = attempt();
        vec![tool]
    },
    |_, _| guest::text("x".repeat(2000)),
);

guest::reducers!(["shown"], |_, _| Some(fail(ErrorCode::ExecutionFailed, attempt())));

fn attempt() -> String {
    match kv::set(Scope::Plugin, "sealed", b"1", None) {
        Err(KvError::Denied(_)) => "denied".to_owned(),
        _ => "REACHED".to_owned(),
    }
}
