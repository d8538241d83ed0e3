//! Warnings about a policy that lets one plugin take most of the host's places.

use super::Policy;
use crate::limits::Limits;

impl Policy {
    /// Says which tables let one plugin run more calls at once than half of `parallel_calls`. The default of
    /// `concurrency` is a quarter of that of `parallel_calls`. Beyond a half, slow calls of one plugin can leave only the
    /// reserved places to all others. A host with a single place has nothing to share.
    #[must_use]
    pub fn fairness_warnings(&self) -> Vec<String> {
        let places = self.host.parallel_calls;
        let most = places / 2;
        let of_all = self.limits.apply(Limits::default());
        let sections = self.plugins.iter().map(|(id, section)| {
            (format!("plugins.{id}.limits"), section.limits.apply(of_all.clone()).concurrency)
        });
        let all = std::iter::once(("limits".to_owned(), of_all.concurrency));
        // A section that says nothing of its own has the number of `[limits]`, which is told once.
        let own = sections.filter(|(_, concurrency)| *concurrency != of_all.concurrency);
        let told = all.chain(own).filter(|(_, concurrency)| places > 1 && *concurrency > most);
        told.map(|(table, concurrency)| {
            format!(
                "[{table}] concurrency = {concurrency}: one plugin may run more than half of the {places} calls of [host] \
                 parallel_calls, and its slow calls delay those of all others; write [{table}] concurrency = {}, or raise \
                 parallel_calls",
                places.div_ceil(4)
            )
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;

    fn warnings(policy: &str) -> Vec<String> {
        let policy = format!("version = 1\nworkspace = \"/srv\"\n{policy}");
        Policy::parse(&policy, Path::new("/"), None).unwrap().fairness_warnings()
    }

    #[test]
    fn a_plugin_that_may_take_most_places_is_warned_about_where_it_stands() {
        let at = |policy: &str| warnings(policy).len();
        assert_eq!(warnings(""), Vec::<String>::new());
        assert_eq!(at("[limits]\nconcurrency = 32"), 0);
        assert_eq!(at("[host]\nparallel_calls = 1\n"), 0, "nothing to share");
        assert_eq!(at("[host]\nparallel_calls = 32\n"), 0);
        let raised = warnings("[limits]\nconcurrency = 33\n[plugins.a.limits]\nmemory = \"1MiB\"");
        assert_eq!(raised.len(), 1, "{raised:?}");
        assert!(raised[0].starts_with("[limits] concurrency = 33"), "{raised:?}");
        let one = warnings("[plugins.a.limits]\nconcurrency = 64\n[plugins.b.limits]\nconcurrency = 8");
        assert_eq!(one.len(), 1, "{one:?}");
        assert!(one[0].starts_with("[plugins.a.limits] concurrency = 64"), "{one:?}");
        assert!(one[0].contains("write [plugins.a.limits] concurrency = 16"), "{one:?}");
        let few = warnings("[host]\nparallel_calls = 8\n[plugins.b.limits]\nconcurrency = 2");
        assert_eq!(few.len(), 1, "{few:?}");
        assert!(few[0].contains("[limits] concurrency = 2"), "{few:?}");
    }
}
