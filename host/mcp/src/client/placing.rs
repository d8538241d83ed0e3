//! The tools of one server in the registry: read, put in place of those before, taken out.

use std::collections::HashSet;
use std::sync::Arc;

use toolbay_core::registry::{Bundle, Entry, ReducerEntry};
use toolbay_core::tool::json;
use toolbay_policy::text::one_line;

use super::bounds::{MAX_LIST_VALUES, MAX_PROBLEMS};
use super::link::LinkError;
use super::list::{self, List, Listed};
use super::remote::RemoteTool;
use super::session::Session;
use super::supervisor::Supervisor;
use super::tools::{self, Taken};
use crate::protocol::bounds::MAX_HEARD;

impl Supervisor {
    /// Reads the list and puts its tools in place of those before.
    pub(super) async fn refresh(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), LinkError> {
        let listed = match session.known.has_tools {
            true => list::read(session, List::Tools).await?,
            false => Listed::default(),
        };
        let (supervisor, session) = (Arc::clone(self), Arc::clone(session));
        // Thousands of schemas are read: not on a thread that others wait for.
        let made = tokio::task::spawn_blocking(move || {
            let version = session.known.version.clone();
            supervisor.put_tools(&listed, version.as_ref(), || session.inbox.ending.is_over());
            (listed, version)
        });
        let (listed, version) =
            made.await.map_err(|_| LinkError::Closed("its tools could not be read".to_owned()))?;
        self.remember(version.as_deref(), &listed).await;
        Ok(())
    }

    /// Puts the tools of a list in place of those before, unless they are not to come any more.
    pub(super) fn put_tools(
        self: &Arc<Self>,
        listed: &Listed,
        version: Option<&Arc<str>>,
        is_over: impl FnOnce() -> bool,
    ) {
        let (tools, mut problems) = (&listed.items, listed.problems.clone());
        let (mut bundle, mut names, mut values) = (Bundle::default(), HashSet::new(), 0);
        for (index, raw) in tools.iter().enumerate() {
            values += json::values_at_most(raw.get());
            if values > MAX_LIST_VALUES {
                let left = tools.len() - index;
                problems.insert(
                    0,
                    format!("its tools have more than {MAX_LIST_VALUES} values in them; the last {left} are left out"),
                );
                break;
            }
            match tools::take(raw, &self.server, version, &*self.ports.outside) {
                Ok(Some(taken)) if names.insert(taken.def.name.clone()) => {
                    problems.extend(taken.warning.clone());
                    if let Err(problem) = self.add(&mut bundle, taken) {
                        problems.push(problem);
                    }
                }
                Ok(Some(taken)) => problems.push(format!(
                    "the tool `{}` is listed twice, or its name comes to that of another; the first is taken",
                    one_line(&taken.own_name, MAX_HEARD)
                )),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let wanted = bundle.tools.len();
        // A supervisor that was stopped meanwhile must not bring its tools back, nor a conversation that is over those of
        // before.
        let mut placed = self.placed.lock();
        if self.stop.is_cancelled() || is_over() {
            return;
        }
        if !(*placed && self.unchanged(&bundle)) {
            let registered = self.ports.registry.replace_source(&self.label(), bundle);
            problems.extend(
                registered.kept.iter().map(|name| format!("`{name}`: the name is taken by another tool")),
            );
            *placed = true;
        }
        drop(placed);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        for problem in &mut problems {
            *problem = self.heard(problem);
        }
        let mut status = self.held();
        if status.problems != problems {
            for problem in &problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        status.tools = wanted;
        status.problems = problems;
    }

    /// Whether the same tools are in the registry already.
    fn unchanged(&self, bundle: &Bundle) -> bool {
        let catalog = self.ports.registry.snapshot();
        let label = self.label();
        let mut there = catalog.from_source(&label);
        let mut new: Vec<&Entry> = bundle.tools.iter().collect();
        new.sort_by(|a, b| a.def.name.cmp(&b.def.name));
        let same = |old: &Entry, new: &Entry| {
            let (old, new) = (&old.def, &new.def);
            old.name == new.name
                && old.title == new.title
                && old.description == new.description
                && old.input_schema == new.input_schema
                && old.output_schema == new.output_schema
                && old.traits == new.traits
                && old.source == new.source
        };
        new.iter().all(|new| there.next().is_some_and(|old| same(old, new))) && there.next().is_none()
    }

    fn add(self: &Arc<Self>, bundle: &mut Bundle, taken: Taken) -> Result<(), String> {
        let Taken { own_name, def, rules, mirror, .. } = taken;
        let name = def.name.to_string();
        let timeout = rules.timeout.unwrap_or(self.server.timeout);
        let tool = RemoteTool { supervisor: Arc::clone(self), own_name, mirror, timeout };
        let entry = Entry::new(def, Arc::new(tool)).with_effects(tools::effects(&self.server));
        let entry = tools::dress(entry, &rules);
        bundle.tools.push(if self.asks_reason { entry.asking_reason() } else { entry });
        let Some(wanted) = rules.reduce else { return Ok(()) };
        let found = self.ports.reducer.as_ref().and_then(|find| find(&wanted));
        let reducer = found.ok_or_else(|| {
            format!("`{name}`: there is no reducer `{wanted}`; its results are not reduced")
        })?;
        bundle.reducers.push(ReducerEntry { target: name, declared: wanted, owner: None, reducer });
        Ok(())
    }

    /// Ends it, and takes its tools out.
    pub(super) fn end(&self) {
        // Under the lock under which tools are put in: none come after.
        let mut placed = self.placed.lock();
        self.stop.cancel();
        if std::mem::take(&mut *placed) {
            self.ports.registry.replace_source(&self.label(), Bundle::default());
        }
    }
}
