//! The host for event loops of other languages. The modules for Python and Node are thin layers above it.
//!
//! | function | what |
//! |---|---|
//! | [`Bridge::open_mailbox`] | a [mailbox](crate#mailboxes) for an event loop; `socket` becomes readable when it has events |
//! | [`Bridge::submit`] | a request that takes time: open a host, run calls, load a plugin. Its answer is an event |
//! | [`Bridge::query`] | a request that is answered at once: a view, a session, a vendor's format |
//! | [`Bridge::drain`] | the events of a mailbox: answers, progress, calls of native tools, requests for approval |
//! | [`Bridge::reply`] | a reply to a call of a native tool or to a request for approval |
//! | [`Bridge::cancel`] | cancels the calls of a request, or the opening of a host |
//! | [`Bridge::release`] | forgets a view, a session, or a host that nobody closed |
//! | [`Bridge::close_mailbox`] | the event loop has ended: its calls are cancelled, its questions withdrawn |
//! | [`Bridge::close_host`] | closes a host and waits for it, when its event loop has ended |
//! | [`Bridge::shut_down`] | closes all hosts and waits for them, when the process ends |
//!
//! # Mailboxes
//!
//! All values cross as JSON text or bytes, and numbers name hosts, views and sessions. No object of the language enters this
//! crate, and no thread of this crate calls the language. So nothing can race with the end of an interpreter or wait for
//! its lock. Only [`Bridge::close_host`] and [`Bridge::shut_down`] block.
//!
//! # Processes
//!
//! A process has the hosts that it opened. After `fork`, the threads of a host exist only in the parent, and locks can be held
//! forever. So once a host was opened, the bridge refuses every request of a child, before it takes a lock, and leaks
//! what it owns. An opening that failed is answered when its threads have ended: a child that is forked after it may open
//! hosts.

mod call;
mod error;
mod event;
mod host;
mod log;
mod mailbox;
mod number;
mod policy;
mod query;
mod request;
mod result;
mod vendor_format;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use toolbay::{CancellationToken, PluginId, Session, View};

pub use crate::error::{BridgeError, ErrorKind};
pub use crate::mailbox::MAX_PROGRESS;

use crate::call::Batch;
use crate::event::Event;
use crate::host::{HostRuntime, OpenHost};
use crate::mailbox::Mailbox;
use crate::request::{CallAllRequest, OpenRequest, Reply, Request};

/// A mailbox as its event loop needs it.
#[derive(Debug)]
pub struct OpenMailbox {
    /// The number that names the mailbox.
    pub id: u64,
    /// The socket that becomes readable when there are events. Only [`Bridge::drain`] reads from it.
    pub socket: OwnedFd,
}

/// The hosts, views, sessions and mailboxes of a process.
#[derive(Debug, Default)]
pub struct Bridge {
    /// The process that last opened a host; 0 before.
    process: AtomicU32,
    /// How many hosts that process opens or has opened, closed ones included.
    owned: AtomicUsize,
    hosts: Mutex<HashMap<u64, Arc<OpenHost>>>,
    mailboxes: Mutex<HashMap<u64, Arc<Mailbox>>>,
    sessions: Mutex<HashMap<u64, Arc<Session>>>,
    /// Each with the number of its host.
    views: Mutex<HashMap<u64, (u64, View)>>,
    /// The hosts that are being opened, by their requests.
    openings: Mutex<HashMap<u64, Opening>>,
    /// One for each host that is being closed. It is disconnected when the host is closed.
    closing: Mutex<Vec<Receiver<()>>>,
}

/// A host that is being opened.
#[derive(Debug)]
struct Opening {
    cancel: CancellationToken,
    /// It is disconnected when the task has ended.
    ended: Receiver<()>,
}

type Answer<T> = Result<T, BridgeError>;

impl Bridge {
    /// Opens a mailbox for an event loop.
    ///
    /// # Errors
    /// The process has no free file descriptor, or it is a fork.
    pub fn open_mailbox(&self) -> Answer<OpenMailbox> {
        self.enter(|| {
            let (id, mailbox) = (number::next(), Mailbox::new()?);
            let socket = mailbox.socket()?;
            self.mailboxes.lock().insert(id, Arc::new(mailbox));
            Ok(OpenMailbox { id, socket })
        })
    }

    /// Begins a request, and returns the number that its events have. `payload` is the component of `load_bytes`.
    ///
    /// # Errors
    /// The request is invalid, or names a host or view that does not exist.
    pub fn submit(self: &Arc<Self>, mailbox: u64, request: &str, payload: Vec<u8>) -> Answer<u64> {
        self.enter(|| {
            let mailbox = self.mailbox(mailbox)?;
            let id = number::next();
            match serde_json::from_str(request)? {
                Request::Open(request) => self.open(mailbox, id, *request)?,
                Request::CallAll(request) => self.call_all(&mailbox, id, *request)?,
                Request::LoadFile { host, plugin, file } => {
                    let (host, checked) = (self.host(host)?, plugin_id(&plugin)?);
                    let loading = Arc::clone(&host);
                    spawn(&host, mailbox, id, async move {
                        let loaded = loading.host.load_file(checked, &file).await;
                        Ok(query::warnings(
                            &loaded.map_err(|error| loading.load_error(file.display(), &error))?,
                        ))
                    });
                }
                Request::LoadBytes { host, plugin } => {
                    let (host, checked) = (self.host(host)?, plugin_id(&plugin)?);
                    let loading = Arc::clone(&host);
                    spawn(&host, mailbox, id, async move {
                        let loaded = loading.host.load_bytes(checked, payload).await;
                        Ok(query::warnings(&loaded.map_err(|error| loading.load_error(&plugin, &error))?))
                    });
                }
                Request::ReloadPolicy { host, policy } => {
                    let host = self.host(host)?;
                    let reloaded = host.host.clone();
                    spawn(&host, mailbox, id, async move {
                        let read = tokio::task::spawn_blocking(move || policy::read(&policy)).await;
                        let read =
                            read.map_err(|error| BridgeError::new(ErrorKind::Internal, error.to_string()))??;
                        let report = reloaded.reload_policy(read.policy).await?;
                        Ok(query::report(&report))
                    });
                }
                Request::Close { host } => self.close(mailbox, id, host)?,
            }
            Ok(id)
        })
    }

    /// Answers a request. `payload` is the message of `parse_calls`, or the results of `result_messages`.
    ///
    /// # Errors
    /// The request is invalid, or what it asks for is refused.
    pub fn query(&self, request: &str, payload: &str) -> Answer<String> {
        self.enter(|| Ok(self.answer(serde_json::from_str(request)?, payload)?.to_string()))
    }

    /// Takes the events of a mailbox: `{"dropped": 0, "events": […]}`. `dropped` counts progress events that are missing.
    ///
    /// # Errors
    /// The mailbox is closed.
    pub fn drain(&self, mailbox: u64) -> Answer<String> {
        self.enter(|| Ok(self.mailbox(mailbox)?.drain()))
    }

    /// Replies to a call of a native tool or to a request for approval. A reply that comes too late is dropped.
    ///
    /// # Errors
    /// The reply is invalid, or the mailbox is closed.
    pub fn reply(&self, mailbox: u64, id: u64, reply: &str) -> Answer<()> {
        self.enter(|| {
            let reply: Reply = serde_json::from_str(reply)?;
            call::reply(&*self.mailbox(mailbox)?, id, reply)
        })
    }

    /// Cancels the calls of a request, or the opening of a host.
    ///
    /// # Errors
    /// The mailbox is closed.
    pub fn cancel(&self, mailbox: u64, id: u64) -> Answer<()> {
        self.enter(|| {
            self.mailbox(mailbox)?.cancel(id);
            Ok(())
        })
    }

    /// Forgets a view or a session; calls that use it go on. Closes a host without waiting for it.
    ///
    /// # Errors
    /// The process is a fork.
    pub fn release(&self, id: u64) -> Answer<()> {
        self.enter(|| {
            let (view, session) = (self.views.lock().remove(&id), self.sessions.lock().remove(&id));
            drop((view, session));
            let host = self.hosts.lock().remove(&id);
            if let Some(host) = host {
                self.end(id, host, async {});
            }
            Ok(())
        })
    }

    /// Closes a mailbox, because its event loop has ended. Its calls are cancelled and its questions withdrawn. A host whose
    /// number the loop did not take is closed, too.
    ///
    /// # Errors
    /// The process is a fork.
    pub fn close_mailbox(&self, mailbox: u64) -> Answer<()> {
        self.enter(|| {
            let closed = self.mailboxes.lock().remove(&mailbox);
            let unclaimed = closed.map(|mailbox| mailbox.close()).unwrap_or_default();
            unclaimed.into_iter().try_for_each(|host| self.release(host))
        })
    }

    /// Closes a host, and blocks until its calls and servers have ended, for at most five seconds. Call it when the event
    /// loop ends that alone uses the host. A host that is closed already is no error.
    ///
    /// # Errors
    /// The process is a fork.
    pub fn close_host(&self, host: u64) -> Answer<()> {
        self.enter(|| {
            let closed = self.hosts.lock().remove(&host);
            if let Some(closed) = closed {
                let (end, ended) = channel::<()>();
                self.end(host, closed, async move { drop(end) });
                // Nothing is sent: the channel is disconnected, or the time is over.
                let _ = ended.recv_timeout(host::CLOSE_WAIT);
            }
            Ok(())
        })
    }

    /// Closes all hosts, and blocks until their calls and servers have ended, for at most five seconds. Call it when the
    /// process ends, from a thread of the language.
    ///
    /// # Errors
    /// The process is a fork.
    pub fn shut_down(&self) -> Answer<()> {
        self.enter(|| {
            let deadline = Instant::now() + host::CLOSE_WAIT;
            let wait = |ended: &Receiver<()>| {
                // Nothing is sent: the channel is disconnected, or the time is over.
                let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            };
            let openings = std::mem::take(&mut *self.openings.lock());
            openings.values().for_each(|opening| opening.cancel.cancel());
            openings.values().for_each(|opening| wait(&opening.ended));
            let hosts = std::mem::take(&mut *self.hosts.lock());
            hosts.into_iter().for_each(|(id, host)| self.end(id, host, async {}));
            let closing = std::mem::take(&mut *self.closing.lock());
            closing.iter().for_each(wait);
            Ok(())
        })
    }

    /// Runs a request. A fork is refused before any lock is taken, and a panic becomes an error.
    fn enter<T>(&self, work: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let owns_hosts = self.owned.load(Ordering::Acquire) > 0;
        if owns_hosts && self.process.load(Ordering::Acquire) != std::process::id() {
            let message = "the host was opened in the parent of this process, and does not work after `fork`: \
                           open hosts in the child only";
            return Err(BridgeError::new(ErrorKind::Fork, message));
        }
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(BridgeError::from_panic(&*panic)))
    }

    fn mailbox(&self, id: u64) -> Answer<Arc<Mailbox>> {
        let mailbox = self.mailboxes.lock().get(&id).cloned();
        mailbox.ok_or_else(|| BridgeError::closed("event loop"))
    }

    fn host(&self, id: u64) -> Answer<Arc<OpenHost>> {
        let host = self.hosts.lock().get(&id).cloned();
        host.ok_or_else(|| BridgeError::closed("host"))
    }

    /// A view with the number of its host. Views end with their host.
    fn view(&self, id: u64) -> Answer<(u64, View)> {
        let view = self.views.lock().get(&id).cloned();
        view.ok_or_else(|| BridgeError::closed("host of the view"))
    }

    fn session(&self, id: u64) -> Answer<Arc<Session>> {
        let session = self.sessions.lock().get(&id).cloned();
        session.ok_or_else(|| BridgeError::argument("the session does not exist"))
    }

    fn open(self: &Arc<Self>, mailbox: Arc<Mailbox>, id: u64, request: OpenRequest) -> Answer<()> {
        let (bridge, runtime) = (Arc::clone(self), Arc::new(HostRuntime::new()?));
        let cancel = CancellationToken::new();
        mailbox.begin_batch(id, cancel.clone())?;
        self.process.store(std::process::id(), Ordering::Release);
        self.owned.fetch_add(1, Ordering::AcqRel);
        log::forward_to(&mailbox);
        let (owner, threads) = (Arc::clone(self), Arc::clone(&runtime));
        let handle = runtime.handle().clone();
        let pending = PendingRequest::new(Arc::clone(&mailbox), id);
        let (end, ended) = channel::<()>();
        self.openings.lock().insert(id, Opening { cancel: cancel.clone(), ended });
        let work = async move {
            let _end = end;
            let host = tokio::select! {
                biased;
                () = cancel.cancelled() => Err(BridgeError::closed("event loop")),
                host = OpenHost::open(request, runtime) => host,
            };
            mailbox.end_batch(id);
            let host = host.map(|host| {
                let (number, host) = (number::next(), Arc::new(host));
                if cancel.is_cancelled() {
                    // Nobody waits for the number.
                    bridge.end(number, host, async {});
                } else {
                    bridge.hosts.lock().insert(number, host);
                }
                number
            });
            bridge.openings.lock().remove(&id);
            host
        };
        // The task ends when the host is open or has failed. It is not awaited: its answer is an event.
        drop(handle.spawn(async move {
            match without_panic(work).await {
                Err(error) => owner.fail_opening(threads, pending, error),
                Ok(host) => {
                    if !pending.opened(host) {
                        // Nobody has the number. A task does not run in a fork, so nothing is refused.
                        drop(owner.release(host));
                    }
                }
            }
        }));
        Ok(())
    }

    /// Answers an opening that failed, once its threads have ended.
    fn fail_opening(
        self: Arc<Self>,
        threads: Arc<HostRuntime>,
        mut pending: PendingRequest,
        error: BridgeError,
    ) {
        pending.failure = Some(error);
        // The thread ends with them. If it does not start, dropping the request answers it.
        drop(std::thread::Builder::new().name("toolbay-end".to_owned()).spawn(move || {
            threads.join();
            self.owned.fetch_sub(1, Ordering::AcqRel);
            drop(pending);
        }));
    }

    fn call_all(&self, mailbox: &Arc<Mailbox>, id: u64, request: CallAllRequest) -> Answer<()> {
        let (host, (owner, view)) = (self.host(request.host)?, self.view(request.view)?);
        if owner != request.host {
            return Err(BridgeError::argument("the view is of another host"));
        }
        let session = request.session.map(|session| self.session(session)).transpose()?;
        let cancel = host.cancel_token();
        mailbox.begin_batch(id, cancel.clone())?;
        let batch = Batch::new(mailbox, id, request, host.host.clone(), view, session, host.asks);
        let run = batch.with_cancel(cancel).run();
        let pending = PendingRequest::new(Arc::clone(mailbox), id);
        host.spawn(async move {
            let mut pending = pending;
            // A batch that ends sends its results.
            pending.failure = without_panic(async {
                run.await;
                Ok(())
            })
            .await
            .err();
        });
        Ok(())
    }

    fn close(&self, mailbox: Arc<Mailbox>, id: u64, host: u64) -> Answer<()> {
        let closed = self.hosts.lock().remove(&host);
        let closed = closed.ok_or_else(|| BridgeError::closed("host"))?;
        self.end(host, closed, async move { mailbox.push(&Event::Done { id, value: Value::Null }) });
        Ok(())
    }

    /// Closes a host, then says so. The task ends with [`host::CLOSE_WAIT`] at the latest, and ends the runtime that it runs
    /// in. Its views end now: each holds the plugins and the instance pool, which is terabytes of address space, and a
    /// language may collect its objects much later.
    fn end(&self, id: u64, host: Arc<OpenHost>, done: impl Future<Output = ()> + Send + 'static) {
        self.views.lock().retain(|_, (owner, _)| *owner != id);
        let runtime = Arc::clone(&host.runtime);
        let ending = Arc::clone(&runtime);
        let (end, ended) = channel::<()>();
        let mut closing = self.closing.lock();
        closing.retain(|ended| ended.try_recv() == Err(TryRecvError::Empty));
        closing.push(ended);
        drop(closing);
        drop(runtime.handle().spawn(async move {
            // A panic of a plugin's last call must not keep the threads.
            drop(AssertUnwindSafe(host.close()).catch_unwind().await);
            done.await;
            ending.shut_down();
            drop(end);
        }));
    }
}

/// Runs a request of a host. Its answer is an event.
fn spawn(
    host: &OpenHost,
    mailbox: Arc<Mailbox>,
    id: u64,
    work: impl Future<Output = Answer<Value>> + Send + 'static,
) {
    let (closing, pending) = (host.cancel_token(), PendingRequest::new(mailbox, id));
    host.spawn(async move {
        let done = without_panic(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => Err(BridgeError::closed("host")),
                done = work => done,
            }
        });
        pending.answer(done.await);
    });
}

/// Runs work; a panic is an error.
async fn without_panic<T>(work: impl Future<Output = Answer<T>>) -> Answer<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.unwrap_or_else(|panic| Err(BridgeError::from_panic(&*panic)))
}

/// A request without an answer. Make it before its task begins: a runtime that ends also drops tasks that never ran.
struct PendingRequest {
    mailbox: Arc<Mailbox>,
    id: u64,
    /// What dropping it answers.
    failure: Option<BridgeError>,
}

impl PendingRequest {
    /// A request that fails if its task is dropped, because its host was closed and its runtime has ended.
    fn new(mailbox: Arc<Mailbox>, id: u64) -> Self {
        Self { mailbox, id, failure: Some(BridgeError::closed("host")) }
    }

    fn answer(mut self, done: Answer<Value>) {
        match done {
            Ok(value) => {
                self.failure = None;
                self.mailbox.push(&Event::Done { id: self.id, value });
            }
            Err(error) => self.failure = Some(error),
        }
    }

    /// Answers with the number of an open host. Returns false if the mailbox is closed.
    fn opened(mut self, host: u64) -> bool {
        self.failure = None;
        self.mailbox.push_opened(self.id, host)
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(error) = &self.failure {
            self.mailbox.end_batch(self.id);
            self.mailbox.push(&Event::Failed { id: self.id, error });
        }
    }
}

fn plugin_id(text: &str) -> Answer<PluginId> {
    PluginId::new(text).map_err(|error| BridgeError::argument(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_fork_is_refused_at_once() {
        let bridge = Bridge::default();
        bridge.process.store(std::process::id() + 1, Ordering::Release);
        bridge.owned.store(1, Ordering::Release);
        // A lock that the parent held at the fork.
        let _held = bridge.mailboxes.lock();
        for error in [
            bridge.open_mailbox().map(drop).unwrap_err(),
            bridge.drain(1).map(drop).unwrap_err(),
            bridge.close_mailbox(1).unwrap_err(),
            bridge.shut_down().unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Fork);
        }
    }

    #[test]
    fn a_child_is_not_refused_after_an_opening_that_failed() {
        let bridge = Arc::<Bridge>::default();
        let opened = bridge.open_mailbox().unwrap();
        let request = r#"{"op": "open", "executable": "/none", "policy": {"base": "/"}}"#;
        let _id = bridge.submit(opened.id, request, Vec::new()).unwrap();
        let mut socket = UnixStream::from(opened.socket);
        socket.set_nonblocking(false).unwrap();
        socket.read_exact(&mut [0]).unwrap();
        socket.set_nonblocking(true).unwrap();
        let events = bridge.drain(opened.id).unwrap();
        assert!(events.contains("executable"), "{events}");
        bridge.process.store(std::process::id() + 1, Ordering::Release);
        assert!(bridge.open_mailbox().is_ok());
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = Bridge::default().enter(|| -> Answer<()> { panic!("lost") }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        assert!(error.message.contains("lost"), "{error}");
    }
}
