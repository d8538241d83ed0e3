//! Several views as one.

use std::sync::Arc;

use super::{FoundTool, Own, View};
use crate::registry::view::Filter;
use crate::registry::{Catalog, Collision, OnCollision};

impl View {
    /// One view on all that these let through, from the first to the last. Each tool keeps what came with it: its
    /// flags, its reducer, the profile its calls run under. The views themselves are not changed.
    ///
    /// A tool that two of them let through is a collision, unless it is the very same under the same profile. Then
    /// the incoming tool's own policy decides ([`Entry::on_collision`](crate::registry::Entry)), and `on_collision`
    /// where it has none. What a view refuses does not stand in the way of one that lets a tool of this name through.
    ///
    /// # Errors
    /// A collision that nobody wants to settle.
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
            let mut own = merged.own.as_deref().cloned().unwrap_or_default();
            for incoming in view.held() {
                merged.take(&mut own, view, incoming, on_collision)?;
            }
            merged = merged.having(own);
        }
        Ok(merged)
    }

    /// Takes one tool over into `own`, which is to be this view's.
    fn take(
        &self,
        own: &mut Own,
        view: &Self,
        incoming: FoundTool<'_>,
        on_collision: OnCollision,
    ) -> Result<(), Collision> {
        let name = incoming.entry.def.name.as_str();
        let takes = match (self.find_tool(name), incoming.gate()) {
            (None, _) => true,
            // Refused here and there: the first refusal is as good as the second.
            (Some(_), Some(_)) => false,
            (Some(there), None) if there.gate().is_some() => true,
            (Some(there), None) if is_same(there, incoming) => false,
            (Some(there), None) => match incoming.entry.on_collision.unwrap_or(on_collision) {
                OnCollision::Throw => return Err(Collision::with_tool(there.entry)),
                OnCollision::Replace => true,
                OnCollision::Keep => false,
            },
        };
        if takes {
            own.tools.insert(name.into(), incoming.added());
            match view.reducer(name) {
                Some(reducer) => drop(own.reducers.insert(name.to_owned(), Arc::clone(reducer))),
                None => drop(own.reducers.remove(name)),
            }
        }
        Ok(())
    }
}

fn is_same(there: FoundTool<'_>, incoming: FoundTool<'_>) -> bool {
    Arc::ptr_eq(there.entry, incoming.entry) && there.filter.profile_name() == incoming.filter.profile_name()
}
