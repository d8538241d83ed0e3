//! The grants, settings and substitutes of a test.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use toml::{Table, Value};
use toolbay::{Host, Policy};

use crate::cassette::Cassette;
use crate::component::Component;
use crate::fake_clock::FakeClock;
use crate::host::TestHost;
use crate::{crate_folder, fail, target_folder};

/// The settings of a [`TestHost`]. Each adds to a policy that grants nothing. A tool never gets a capability that it does
/// not declare, whatever is granted.
#[derive(Debug)]
pub struct TestHostBuilder {
    component: Component,
    policy: Table,
    secrets: Vec<(String, String)>,
    files: Option<PathBuf>,
    cassette: Option<PathBuf>,
    clock: Option<FakeClock>,
    seed: Option<u64>,
}

impl TestHost {
    /// Starts to build a host with the component of the crate under test, which is compiled if needed.
    ///
    /// # Panics
    /// When the crate does not compile.
    #[must_use]
    #[track_caller]
    pub fn of_crate() -> TestHostBuilder {
        TestHostBuilder::new(Component::of_crate().unwrap_or_else(|problem| fail(&problem)))
    }

    /// Starts to build a host with an existing component under an id.
    ///
    /// # Panics
    /// When the id is invalid.
    #[must_use]
    #[track_caller]
    pub fn of_file(id: &str, file: impl AsRef<Path>) -> TestHostBuilder {
        TestHostBuilder::new(Component::of_file(id, file.as_ref()).unwrap_or_else(|problem| fail(&problem)))
    }
}

impl TestHostBuilder {
    fn new(component: Component) -> Self {
        // The author of a tool wants to know that a result does not match its schema.
        let results = Table::from_iter([("schema_mismatch".to_owned(), Value::from("error"))]);
        let policy = Table::from_iter([
            ("version".to_owned(), Value::Integer(1)),
            ("results".to_owned(), Value::Table(results)),
        ]);
        Self { component, policy, secrets: Vec::new(), files: None, cassette: None, clock: None, seed: None }
    }

    /// Grants requests by a rule of the policy key `net`: `https://example.com`, `GET https://*.example.com`.
    #[must_use]
    pub fn allow_net(self, rule: &str) -> Self {
        self.grant("net", rule)
    }

    /// Copies a folder, given relative to the crate, into the workspace, and grants reading and writing
    /// there.
    #[must_use]
    pub fn files(mut self, folder: impl Into<PathBuf>) -> Self {
        self.files = Some(folder.into());
        self.grant("fs_read", "$workspace/**").grant("fs_write", "$workspace/**")
    }

    /// Grants key-value storage of a scope: `plugin`, `tool`, `session` or `agent`. It is empty at the start.
    #[must_use]
    pub fn kv(self, scope: &str) -> Self {
        self.grant("kv", scope)
    }

    /// Grants an environment variable with a value.
    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        self.grant("env", &format!("{name}={value}"))
    }

    /// Grants a secret that may be sent to an origin (`https://api.example.com`) in the header `authorization`. For
    /// other headers, write its section with [`TestHostBuilder::policy`].
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str, origin: &str) -> Self {
        self.secrets.push((name.to_owned(), value.to_owned()));
        self.section(&["secrets", name]).insert("origins".to_owned(), vec![origin].into());
        self.grant("secrets", name)
    }

    /// Grants a rule under any key of the policy's `grant` table.
    #[must_use]
    pub fn grant(mut self, key: &str, rule: &str) -> Self {
        let rules = self.of_plugin("grant").entry(key).or_insert_with(|| Value::Array(Vec::new()));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(rule.into());
        }
        self
    }

    /// Sets a setting of the plugin.
    ///
    /// # Panics
    /// When the value cannot be written as TOML.
    #[must_use]
    #[track_caller]
    pub fn config(mut self, key: &str, value: impl Serialize) -> Self {
        self.of_plugin("config").insert(key.to_owned(), written(value, key));
        self
    }

    /// Sets a limit of the plugin, as the policy writes it: `.limit("timeout", "2s")`, `.limit("fuel", 1_000_000)`.
    ///
    /// # Panics
    /// When the value cannot be written as TOML.
    #[must_use]
    #[track_caller]
    pub fn limit(mut self, name: &str, value: impl Serialize) -> Self {
        self.of_plugin("limits").insert(name.to_owned(), written(value, name));
        self
    }

    /// Merges further TOML into the policy. Tables are merged, lists are extended, and other values replace earlier
    /// ones.
    ///
    /// # Panics
    /// When the text is not TOML.
    #[must_use]
    #[track_caller]
    pub fn policy(mut self, text: &str) -> Self {
        let more: Table = toml::from_str(text).unwrap_or_else(|error| fail(&format!("the policy: {error}")));
        join(&mut self.policy, more);
        self
    }

    /// Answers requests from a record, given relative to the crate. No request leaves the machine, and a request without a
    /// record fails the test. With `TOOLBAY_RECORD_HTTP=1` requests are sent and the record is rewritten. Do not share records.
    #[must_use]
    pub fn recorded_http(mut self, file: impl Into<PathBuf>) -> Self {
        self.cassette = Some(file.into());
        self
    }

    /// Uses this clock instead of the system's, and grants `clock`.
    #[must_use]
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.clock = Some(clock.clone());
        self.of_plugin("grant").insert("clock".to_owned(), true.into());
        self
    }

    /// Uses deterministic randomness from a seed, and grants `random`.
    #[must_use]
    pub fn random_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self.of_plugin("grant").insert("random".to_owned(), true.into());
        self
    }

    /// Creates the host and loads the component.
    ///
    /// # Panics
    /// When the policy is invalid, a file is missing, or the component does not load.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> TestHost {
        self.try_start().unwrap_or_else(|problem| fail(&problem))
    }

    /// [`TestHostBuilder::start`] for tests of a failing start.
    ///
    /// # Errors
    /// The reason why the host does not start.
    pub fn try_start(mut self) -> Result<TestHost, String> {
        let io = |error: io::Error| format!("no folder for the test: {error}");
        let folder = tempfile::tempdir().map_err(io)?;
        let root = folder.path().canonicalize().map_err(io)?;
        let workspace = root.join("workspace");
        fs::create_dir(&workspace).map_err(io)?;
        if let Some(files) = &self.files {
            let from = crate_folder().join(files);
            copy(&from, &workspace).map_err(|error| format!("`{}`: {error}", from.display()))?;
        }
        for (number, (name, value)) in std::mem::take(&mut self.secrets).into_iter().enumerate() {
            let file = root.join(format!("secret-{number}"));
            write_private(&file, &value).map_err(|error| format!("the secret `{name}`: {error}"))?;
            let from = format!("file:{}", file.display());
            self.section(&["secrets", &name]).insert("from".to_owned(), from.into());
        }
        let text = toml::to_string(&self.policy).map_err(|error| format!("the policy: {error}"))?;
        let policy = Policy::parse(&text, &root, Some(&workspace));
        let policy = policy.map_err(|error| format!("the policy: {error}\n{text}"))?;
        let builder = Host::builder(policy);
        // A test writes into no home.
        let mut builder = match target_folder() {
            Some(folder) => builder.cache_dir(folder.join("cache")),
            None => builder.no_cache(),
        };
        let cassette = match &self.cassette {
            Some(file) => Some(Arc::new(Cassette::open(&crate_folder(), file)?)),
            None => None,
        };
        if let Some(cassette) = &cassette {
            builder = builder.recorded_http(Arc::clone(cassette) as _);
        }
        if let Some(clock) = self.clock {
            builder = builder.clock(Arc::new(clock));
        }
        if let Some(seed) = self.seed {
            builder = builder.random_seed(seed);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let Component { id, file } = self.component;
        let host = runtime.block_on(async {
            let host = builder.build().map_err(|error| error.to_string())?;
            let loaded = host.load_file(id.clone(), &file).await;
            loaded.map_err(|error| format!("`{}` {error}", file.display()))?;
            Ok::<_, String>(host)
        })?;
        Ok(TestHost { host, id, runtime, cassette, workspace, _folder: folder })
    }

    fn of_plugin(&mut self, section: &str) -> &mut Table {
        let id = self.component.id.to_string();
        self.section(&["plugins", &id, section])
    }

    /// The table at a path of the policy, created if it is missing.
    fn section(&mut self, path: &[&str]) -> &mut Table {
        path.iter().fold(&mut self.policy, |table, key| {
            let member = table.entry(*key).or_insert_with(|| Value::Table(Table::new()));
            member.as_table_mut().unwrap_or_else(|| fail(&format!("the policy: `{key}` is no table")))
        })
    }
}

#[track_caller]
fn written(value: impl Serialize, key: &str) -> Value {
    Value::try_from(value).unwrap_or_else(|error| fail(&format!("`{key}`: {error}")))
}

/// Secrets come from files that only this user can read.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    io::Write::write_all(&mut open, text.as_bytes())
}

fn join(table: &mut Table, more: Table) {
    for (key, value) in more {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => join(inner, value),
            (Some(Value::Array(inner)), Value::Array(value)) => inner.extend(value),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

/// Copies the content of a folder. Symlinks stay symlinks.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> TestHostBuilder {
        TestHostBuilder::new(Component::of_file("a-b", Path::new("a.wasm")).unwrap())
    }

    #[test]
    fn what_is_said_is_a_policy() {
        let builder = builder()
            .allow_net("https://a.example")
            .allow_net("https://b.example")
            .kv("plugin")
            .env("TZ", "UTC")
            .config("columns", ["a", "b"])
            .limit("timeout", "2s")
            .policy(
                "[plugins.a-b.grant]\nnet = [\"https://c.example\"]\n[permissions]\ndefault = \"allow\"\n",
            )
            .secret("a/key", "x", "https://a.example")
            .clock(&FakeClock::at("2026-01-01T00:00:00Z"))
            .random_seed(1);
        let text = toml::to_string(&builder.policy).unwrap();
        let expected: Table = toml::from_str(
            "version = 1\n[results]\nschema_mismatch = \"error\"\n[plugins.a-b.grant]\nnet = [\"https://a.example\", \"https://b.example\", \"https://c.example\"]\n\
             kv = [\"plugin\"]\nenv = [\"TZ=UTC\"]\nsecrets = [\"a/key\"]\nclock = true\nrandom = true\n\
             [plugins.a-b.config]\ncolumns = [\"a\", \"b\"]\n[plugins.a-b.limits]\ntimeout = \"2s\"\n\
             [permissions]\ndefault = \"allow\"\n[secrets.\"a/key\"]\norigins = [\"https://a.example\"]\n",
        )
        .unwrap();
        assert_eq!(builder.policy, expected, "{text}");
    }

    #[test]
    fn what_is_not_there_or_not_sound_is_named() {
        let problem = |builder: TestHostBuilder| builder.try_start().unwrap_err();
        assert!(problem(builder()).contains("a.wasm"));
        assert!(problem(builder().files("no/such/folder")).contains("no/such/folder"));
        assert!(problem(builder().recorded_http("no/record.json")).contains("TOOLBAY_RECORD_HTTP"));
        let wrong = problem(builder().allow_net("example.com"));
        assert!(wrong.contains("the policy") && wrong.contains("net = [\"example.com\"]"), "{wrong}");
        assert!(problem(builder().limit("timeuot", "2s")).contains("timeuot"));
    }

    #[test]
    #[should_panic(expected = "the policy")]
    fn what_is_no_toml_ends_the_test() {
        drop(builder().policy("[plugins"));
    }
}
