//! The host for native builds: each import calls the [`FakeHost`](crate::testing::FakeHost) of this thread.
//!
//! Modules, names and signatures match the generated imports, so the rest of the crate does not see the difference.
//! Without a fake host, and for everything that it does not provide, the answer is that of a host without grants.

const NO_FAKE: &str =
    "not granted: this is a native test without `FakeHost::run`, or without this in the fake";
const NOT_FAKED: &str = "not granted: the fake host has none of this";

pub(crate) mod context {
    use crate::bindings::imports::toolbay::plugin::context::Audience;
    use crate::testing::{ReportedProgress, with_fake};

    pub(crate) fn progress(message: &str, percent: Option<f32>, audience: Audience) {
        with_fake(|fake| {
            fake.progress.push(ReportedProgress { message: message.to_owned(), percent, audience });
        });
    }

    pub(crate) fn cancelled() -> bool {
        with_fake(|fake| {
            let polls_left = fake.polls_left.as_mut()?;
            let cancelled = *polls_left == 0;
            *polls_left = polls_left.saturating_sub(1);
            Some(cancelled)
        })
        .flatten()
        .unwrap_or(false)
    }

    pub(crate) fn budget_chars() -> u32 {
        with_fake(|fake| fake.budget_chars).unwrap_or(u32::MAX)
    }

    pub(crate) fn remaining_ms() -> Option<u64> {
        None
    }

    pub(crate) fn dry_run() -> bool {
        with_fake(|fake| fake.dry_run).unwrap_or(false)
    }

    pub(crate) fn call_id() -> String {
        "fake-call".to_owned()
    }

    pub(crate) fn working_dir() -> Option<String> {
        with_fake(|fake| fake.working_dir.clone()).flatten()
    }

    pub(crate) fn attribute(name: &str) -> Option<String> {
        with_fake(|fake| fake.attributes.get(name).cloned()).flatten()
    }

    macro_rules! unknown {
        ($($name:ident: $ty:ty),*) => { $(pub(crate) fn $name() -> Option<$ty> { None })* };
    }
    unknown!(session_id: String, session_key: String, platform: String, agent_id: String, personality_id: String);
    unknown!(team_id: String, turn: u32, message_count: u32);
}

pub(crate) mod log {
    use crate::bindings::imports::toolbay::plugin::log::Level;
    use crate::testing::{LogLine, with_fake};

    pub(crate) fn write(level: Level, message: &str, fields: &[(String, String)]) {
        with_fake(|fake| {
            fake.log.push(LogLine { level, message: message.to_owned(), fields: fields.to_vec() });
        });
    }
}

pub(crate) mod config {
    use crate::testing::with_fake;

    pub(crate) fn get(key: &str) -> Option<String> {
        with_fake(|fake| fake.config.get(key).cloned()).flatten()
    }

    pub(crate) fn keys() -> Vec<String> {
        with_fake(|fake| fake.config.keys().cloned().collect()).unwrap_or_default()
    }
}

pub(crate) mod files {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::files::{DirEntry, FileData, FileError, FileStat};
    use crate::testing::{FakeFiles, with_fake};

    fn with_files<T>(ask: impl FnOnce(&mut FakeFiles) -> Result<T, FileError>) -> Result<T, FileError> {
        with_fake(|fake| ask(&mut fake.files)).unwrap_or_else(|| Err(FileError::Denied(NO_FAKE.to_owned())))
    }

    pub(crate) fn read(path: &str, offset: u64, max_bytes: Option<u64>) -> Result<FileData, FileError> {
        with_files(|files| files.read(path, offset, max_bytes))
    }

    pub(crate) fn write(
        path: &str,
        data: &[u8],
        expected_version: Option<&str>,
    ) -> Result<FileStat, FileError> {
        with_files(|files| files.write(path, data, expected_version))
    }

    pub(crate) fn stat(path: &str) -> Result<FileStat, FileError> {
        with_files(|files| files.stat(path))
    }

    pub(crate) fn read_dir(path: &str) -> Result<Vec<DirEntry>, FileError> {
        with_files(|files| files.read_dir(path))
    }

    pub(crate) fn make_dir(path: &str) -> Result<(), FileError> {
        with_files(|files| files.make_dir(path))
    }

    pub(crate) fn remove(path: &str) -> Result<(), FileError> {
        with_files(|files| files.remove(path))
    }
}

pub(crate) mod kv {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::kv::{KvError, Scope};
    use crate::testing::{FakeKv, with_fake};

    type Answer<T> = Result<T, KvError>;

    fn with_kv<T>(ask: impl FnOnce(&mut FakeKv) -> Answer<T>) -> Answer<T> {
        with_fake(|fake| ask(&mut fake.kv)).unwrap_or_else(|| Err(KvError::Denied(NO_FAKE.to_owned())))
    }

    pub(crate) fn get(scope: Scope, key: &str) -> Answer<Option<Vec<u8>>> {
        with_kv(|kv| kv.get(scope, key))
    }

    pub(crate) fn set(scope: Scope, key: &str, value: &[u8], ttl_seconds: Option<u32>) -> Answer<()> {
        with_kv(|kv| kv.set(scope, key, value, ttl_seconds))
    }

    pub(crate) fn remove(scope: Scope, key: &str) -> Answer<()> {
        with_kv(|kv| kv.remove(scope, key))
    }

    pub(crate) fn keys(scope: Scope, prefix: &str, after: Option<&str>, limit: u32) -> Answer<Vec<String>> {
        with_kv(|kv| kv.keys(scope, prefix, after, limit))
    }

    pub(crate) fn increment(scope: Scope, key: &str, by: i64) -> Answer<i64> {
        with_kv(|kv| kv.increment(scope, key, by))
    }

    pub(crate) fn replace(scope: Scope, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Answer<bool> {
        with_kv(|kv| kv.replace(scope, key, expected, value))
    }
}

pub(crate) mod secrets {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::secrets::{Secret, SecretError};
    use crate::testing::with_fake;

    pub(crate) fn get(name: &str) -> Result<Secret, SecretError> {
        let text = with_fake(|fake| fake.secrets.get(name).cloned()).flatten();
        let text = text.ok_or_else(|| SecretError::Denied(NO_FAKE.to_owned()))?;
        Ok(Secret { text, revealed: false })
    }
}

pub(crate) mod http_client {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::http_client::{HttpError, HttpRequest, HttpResponse};
    use crate::testing::with_fake;

    pub(crate) fn fetch(request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        with_fake(|fake| fake.http.fetch(request))
            .unwrap_or_else(|| Err(HttpError::Denied(NO_FAKE.to_owned())))
    }
}

pub(crate) mod process {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::process::{Command, Completed, ProcessError};
    use crate::testing::with_fake;

    pub(crate) fn run(command: &Command) -> Result<Completed, ProcessError> {
        with_fake(|fake| fake.process.run(command))
            .unwrap_or_else(|| Err(ProcessError::Denied(NO_FAKE.to_owned())))
    }
}

pub(crate) mod tool_invoke {
    use super::NO_FAKE;
    use crate::bindings::imports::toolbay::plugin::tool_invoke::{Callable, Invocation, Invoked};
    use crate::error::{Error, into_record};
    use crate::testing::with_fake;
    use crate::types::ToolError;

    pub(crate) fn tools() -> Vec<Callable> {
        with_fake(|fake| fake.tools.list()).unwrap_or_default()
    }

    pub(crate) fn invoke(calls: &[Invocation]) -> Result<Vec<Result<Invoked, ToolError>>, ToolError> {
        with_fake(|fake| fake.tools.invoke(calls))
            .ok_or_else(|| into_record(Error::not_available(NO_FAKE).at("denied")))
    }
}

pub(crate) mod attachments {
    use super::NOT_FAKED;
    use crate::bindings::imports::toolbay::plugin::attachments::{Attachment, AttachmentError};

    pub(crate) fn all() -> Vec<Attachment> {
        Vec::new()
    }

    pub(crate) fn read(_: &str) -> Result<Vec<u8>, AttachmentError> {
        Err(AttachmentError::Denied(NOT_FAKED.to_owned()))
    }

    pub(crate) fn create(_: &str, _: &str, _: &[u8]) -> Result<Attachment, AttachmentError> {
        Err(AttachmentError::Denied(NOT_FAKED.to_owned()))
    }
}
