//! Merging of views.

use std::sync::Arc;

use super::{FoundTool, LocalTools, View};
use crate::registry::view::Filter;
use crate::registry::{Catalog, Collision, OnCollision};

impl View {
    /// Merges views into one view with the callable tools of all. Each tool keeps its flags, its reducer and its
    /// profile. The original views do not change.
    ///
    /// Two callable tools with the same name collide, unless they are the same entry under the same profile. In a
    /// collision the policy of the incoming tool decides ([`ToolEntry::on_collision`](crate::registry::ToolEntry)), or
    /// `on_collision` if it has none. A tool that is not callable in one view does not collide with a callable tool of
    /// another.
    ///
    /// # Errors
    /// Two tools collide and the action is [`OnCollision::Fail`].
    pub fn merge<'a>(
        views: impl IntoIterator<Item = &'a Self>,
        on_collision: OnCollision,
    ) -> Result<Self, Collision> {
        let mut views = views.into_iter();
        let Some(first) = views.next() else {
            return Ok(Self::new(Arc::<Catalog>::default(), Filter::default()));
        };
        let mut merged = first.clone();
        for view in views {
            let mut local = merged.local.as_deref().cloned().unwrap_or_default();
            for incoming in view.found_tools() {
                merged.merge_tool(&mut local, view, incoming, on_collision)?;
            }
            merged = merged.with_local(local);
        }
        Ok(merged)
    }

    /// Merges one tool into `local`, the local tools of the merged view.
    fn merge_tool(
        &self,
        local: &mut LocalTools,
        view: &Self,
        incoming: FoundTool<'_>,
        on_collision: OnCollision,
    ) -> Result<(), Collision> {
        let name = incoming.entry.def.name.as_str();
        let takes = match (self.find_tool(name), incoming.denial()) {
            (None, _) => true,
            // Refused in both views: the first refusal stays.
            (Some(_), Some(_)) => false,
            (Some(there), None) if there.denial().is_some() => true,
            (Some(there), None) if is_same(there, incoming) => false,
            (Some(there), None) => match incoming.entry.on_collision.unwrap_or(on_collision) {
                OnCollision::Fail => return Err(Collision::with_tool(there.entry)),
                OnCollision::Replace => true,
                OnCollision::Keep => false,
            },
        };
        if takes {
            local.tools.insert(name.into(), incoming.to_local());
            match view.reducer(name) {
                Some(reducer) => drop(local.reducers.insert(name.to_owned(), Arc::clone(reducer))),
                None => drop(local.reducers.remove(name)),
            }
        }
        Ok(())
    }
}

fn is_same(present: FoundTool<'_>, incoming: FoundTool<'_>) -> bool {
    // The views may show it in different forms.
    let entry =
        present.entry.is_shown_form_of(incoming.entry) || incoming.entry.is_shown_form_of(present.entry);
    entry && present.filter.profile_name() == incoming.filter.profile_name()
}
