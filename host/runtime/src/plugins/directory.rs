//! A plugin directory as it was seen last. A file that has not changed is not read again, also not by the next process, if
//! there is a cache for its index; one that is being written is left alone until it has been the same for a while.
//!
//! What is remembered decides nothing by itself: from it and the policy, [`crate::plugins::installed`] makes what runs.

mod reading;

pub(crate) use reading::{Found, Reading};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolbay_policy::name::PluginId;

use crate::error::{HostError, LoadError};
use crate::plugins::cache::{Hashed, Index};
use crate::plugins::digest::Digest;
use crate::plugins::file::{PendingChange, Stamp};
use crate::plugins::installed::{Outcome, Slot};
use crate::plugins::loader::{Candidate, Loader, candidates};

/// How a directory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Every file is read again, whatever it looks like.
    Anew,
    /// What has changed is read.
    Changed,
    /// What has changed, and then has been the same for that long, is read.
    Settled(Duration),
    /// Nothing is read: only what is known is put in order.
    Known,
}

/// What a look came to.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Whether something there is still changing.
    pub(crate) pending: bool,
    /// Whether it comes to something else than before.
    pub(crate) changed: bool,
    /// What is to be read.
    pub(crate) tasks: Vec<Task>,
}

/// A plugin directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// What it comes to.
    pub(crate) slots: Vec<Slot>,
    known: BTreeMap<Key, Known>,
    /// Files that have changed, as they were when they were seen first; `None`: gone.
    moving: BTreeMap<OsString, PendingChange>,
    /// Whether files were read since its index was made.
    unsaved: bool,
}

/// A file's name and the plugin that it is to be: the policy can name several.
pub(crate) type Key = (OsString, PluginId);

/// What came of a file when it was read.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    stamp: Option<Stamp>,
    /// Whether that alone says what is in it: for long, and so for the index.
    stands: bool,
    outcome: Outcome,
    /// The digest, if it could be read.
    digest: Option<Digest>,
    again: Option<Instant>,
    /// Whether the index said what is in it, and nobody opened it.
    unopened: bool,
}

/// A file as it was listed.
struct Listed {
    candidate: Candidate,
    stamp: Option<Stamp>,
    /// What it was hashed to, by the index.
    hashed: Option<Hashed>,
}

/// A file that is to be read.
#[derive(Debug)]
pub(crate) struct Task {
    key: Key,
    file: Arc<Path>,
    /// What it was when the directory was listed.
    seen: Option<Stamp>,
    /// Whether it must still be that once it was read, or it is being written.
    still: bool,
    known: Option<Known>,
    /// What it was hashed to by another process, if it is as it was.
    hashed: Option<Hashed>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        let (known, moving) = (BTreeMap::new(), BTreeMap::new());
        Self { path, slots: Vec::new(), known, moving, unsaved: false }
    }

    /// Whether nothing of it was ever read.
    pub(crate) fn is_new(&self) -> bool {
        self.known.is_empty()
    }

    /// Forgets what was refused because the operator had pinned other bytes: the policy is another one.
    pub(crate) fn forget_pins(&mut self) {
        let pinned = |known: &Known| matches!(&known.outcome, Err(error) if matches!(**error, LoadError::Digest { .. }));
        self.known.retain(|_, known| !pinned(known));
    }

    /// Looks at it, and says what is to be read: that takes time, in which it may be looked at again.
    ///
    /// # Errors
    /// When it can not be read; what was known of it stays.
    pub(crate) async fn look(&mut self, loader: &Loader, how: Look) -> Result<Looked, HostError> {
        let now = Instant::now();
        let listed = self.list(loader, how).await?;
        let (mut slots, mut tasks, mut pending) = (Vec::new(), Vec::new(), false);
        let mut there = BTreeSet::new();
        // Where nothing is known, nothing is gone.
        let knows = !self.known.is_empty() || !self.moving.is_empty();
        for Listed { candidate: Candidate { file, id, .. }, stamp, hashed } in listed {
            let name = file.file_name().unwrap_or_default().to_owned();
            let id = match id {
                Ok(id) => id,
                Err(error) => {
                    slots.push((name, Slot { file: Some(file), id: Err(Arc::new(error)), outcome: None }));
                    continue;
                }
            };
            let key = (name.clone(), id.clone());
            if knows {
                there.insert(key.clone());
            }
            let known = self.known.get(&key);
            let same = known
                .is_some_and(|known| known.stamp == stamp && known.again.is_none_or(|again| now < again));
            let read = match how {
                Look::Anew => true,
                Look::Changed => !same,
                Look::Known => false,
                Look::Settled(_) if hashed.is_some() => true,
                Look::Settled(time) if !same => {
                    let settled = settled(&mut self.moving, &name, stamp, time, now);
                    pending |= !settled;
                    settled
                }
                Look::Settled(_) => {
                    self.moving.remove(&name);
                    false
                }
            };
            let known = known.cloned();
            slots.push((
                name,
                Slot {
                    file: Some(Arc::clone(&file)),
                    id: Ok(id),
                    outcome: known.as_ref().map(|known| known.outcome.clone()),
                },
            ));
            if read {
                // Who wants everything anew wants to know whether it still fails.
                let known = known.filter(|known| how != Look::Anew || known.outcome.is_ok());
                let still = matches!(how, Look::Settled(_));
                tasks.push(Task { key, file, seen: stamp, still, known, hashed });
            }
        }
        if knows {
            pending |= self.gone(&there, &mut slots, how, now);
            // What came and went meanwhile is not remembered.
            let names: BTreeSet<&OsString> =
                there.iter().chain(self.known.keys()).map(|(name, _)| name).collect();
            self.moving.retain(|name, _| names.contains(name));
        }
        let slots: Vec<Slot> = slots.into_iter().map(|(_, slot)| slot).collect();
        let same =
            slots.len() == self.slots.len() && slots.iter().zip(&self.slots).all(|(now, was)| now.is(was));
        self.slots = slots;
        Ok(Looked { pending, changed: !same, tasks })
    }

    /// Remembers what was read under a policy, and puts it in its place; returns whether all of it stood still meanwhile.
    /// What came and went in that time, the next look sees.
    pub(crate) fn learn(&mut self, read: Vec<(Key, Option<Known>)>, same_policy: bool) -> bool {
        let mut stood_still = true;
        let mut outcomes = HashMap::with_capacity(read.len());
        for (key, known) in read {
            match known {
                Some(known) => {
                    self.moving.remove(&key.0);
                    self.unsaved |= !known.unopened;
                    outcomes.insert(key.1.clone(), known.outcome.clone());
                    self.known.insert(key, known);
                }
                None => stood_still = false,
            }
        }
        for slot in &mut self.slots {
            if let Some(outcome) = slot.id.as_ref().ok().and_then(|id| outcomes.remove(id)) {
                slot.outcome = Some(outcome);
            }
        }
        if !same_policy {
            self.forget_pins();
        }
        stood_still
    }

    /// Its index, if files were read since the last one; each file of which the stamp alone says what is in it.
    pub(crate) fn index(&mut self) -> Option<Index> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        let mut index = Index::default();
        for ((name, _), known) in &self.known {
            if let (Some(stamp), true, Ok(plugin)) = (known.stamp, known.stands, &known.outcome) {
                let hashed = Hashed { digest: plugin.digest.clone(), bytes: plugin.bytes };
                index.put(name.clone(), stamp, hashed);
            }
        }
        Some(index)
    }

    /// Its files with the plugins they are to be, what each file is now, and what it was hashed to before this process
    /// knew anything. Who pinned a file wants it hashed at each start.
    async fn list(&self, loader: &Loader, how: Look) -> Result<Vec<Listed>, HostError> {
        let (path, policy) = (self.path.clone(), Arc::clone(&loader.services.policy));
        let (shared, looks) = (Arc::clone(&loader.shared), how != Look::Known);
        let indexed = self.known.is_empty() && !matches!(how, Look::Known | Look::Anew);
        let list = tokio::task::spawn_blocking(move || {
            let cache = shared.engines.cache().filter(|_| indexed);
            let index = cache.map(|cache| cache.index(&path)).unwrap_or_default();
            let of = |candidate: Candidate| {
                let stamp = looks.then(|| Stamp::of_component(&candidate.file, candidate.beside)).flatten();
                let pinned = candidate.id.as_ref().is_ok_and(|id| policy.pinned_sha256(id).is_some());
                let name = candidate.file.file_name().filter(|_| !pinned);
                let hashed = name.and_then(|name| index.of(name, stamp)).cloned();
                Listed { candidate, stamp, hashed }
            };
            Ok(candidates(&path, &policy)?.into_iter().map(of).collect())
        });
        let stopped = |e: tokio::task::JoinError| HostError::Directory {
            path: self.path.clone(),
            error: std::io::Error::other(e.to_string()),
        };
        list.await.map_err(stopped)?
    }

    /// Forgets files that are gone, and keeps the places of those that may only be about to be replaced. Returns
    /// whether there are such.
    fn gone(
        &mut self,
        there: &BTreeSet<Key>,
        slots: &mut Vec<(OsString, Slot)>,
        how: Look,
        now: Instant,
    ) -> bool {
        let names: BTreeSet<&OsString> = there.iter().map(|(name, _)| name).collect();
        let mut waiting = false;
        let moving = &mut self.moving;
        let path = &self.path;
        self.known.retain(|key, known| {
            if there.contains(key) {
                return true;
            }
            let (name, id) = key;
            let stays = match how {
                Look::Settled(time) => !names.contains(name) && !settled(moving, name, None, time, now),
                Look::Known => !names.contains(name) && moving.contains_key(name),
                Look::Anew | Look::Changed => false,
            };
            if stays {
                waiting = true;
                let slot = Slot {
                    file: Some(path.join(name).into()),
                    id: Ok(id.clone()),
                    outcome: Some(known.outcome.clone()),
                };
                slots.push((name.clone(), slot));
            }
            stays
        });
        // Where the files stand in the order of their names is where they stood.
        slots.sort_by(|(one, _), (other, _)| one.cmp(other));
        waiting
    }
}

/// Whether a file that is not as it was is to be read.
fn settled(
    moving: &mut BTreeMap<OsString, PendingChange>,
    name: &OsString,
    stamp: Option<Stamp>,
    time: Duration,
    now: Instant,
) -> bool {
    let change = moving.entry(name.clone()).or_insert_with(|| PendingChange::new(stamp, now));
    change.is_due(stamp, time, now)
}
