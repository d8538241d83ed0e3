//! The threads that connections live on: each waits for its own connections and works on what they say, one after the
//! other.
//!
//! A runtime of many workers has one of them wait for all connections, and wakes another whenever something comes while the
//! first is at work: where a client asks again as soon as it is answered, each request wakes two threads, and that takes
//! longer than the request. What takes its time goes on elsewhere ([`super::reading`]): while something is polled here, the
//! runtime that serves is entered, and whatever is begun is begun there. Only the tasks through which rmcp hands a request
//! without a session stay here ([`own`]).

use std::cell::OnceCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::transport::linger;

/// More of them than this share too little memory to be of use.
const MOST: usize = 16;

thread_local! {
    /// The runtime of this thread, if connections live on it.
    static OWN: OnceCell<Handle> = const { OnceCell::new() };
}

/// The runtime of this thread, if connections live on it: what is begun there wakes no other thread.
pub(super) fn own() -> Option<Handle> {
    OWN.with(|own| own.get().cloned())
}

/// Threads for connections; they end when this is dropped, with what is left on them.
#[derive(Debug)]
pub(super) struct Threads {
    each: Vec<Handle>,
    next: AtomicUsize,
    /// That which serves, and where everything goes that does not belong to a connection.
    main: Handle,
    _end: DropGuard,
}

impl Threads {
    /// As many as there are processors; call in the runtime that serves. Where the system has no threads left, connections
    /// are served by that.
    pub(super) fn new() -> Self {
        let end = CancellationToken::new();
        let count = thread::available_parallelism().map_or(1, usize::from).min(MOST);
        let each = (0..count).map_while(|n| {
            let begun = begin(n, end.clone());
            begun.inspect_err(|error| tracing::warn!(%error, "a thread for connections could not begin")).ok()
        });
        let (each, main) = (each.collect(), Handle::current());
        Self { each, next: AtomicUsize::new(0), main, _end: end.drop_guard() }
    }

    /// Serves a connection on one of them; `serve` gets its bytes, and whether they may be looked for before the thread
    /// sleeps.
    pub(super) fn serve<F>(
        &self,
        stream: TcpStream,
        tasks: &TaskTracker,
        serve: impl FnOnce(TcpStream, bool) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(thread) = next.checked_rem(self.each.len()).and_then(|n| self.each.get(n)) else {
            tasks.spawn(serve(stream, false));
            return;
        };
        let (stream, main) = (stream.into_std(), self.main.clone());
        let serving = async move {
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => Entered::new(main, || serve(stream, true)).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        };
        tasks.spawn_on(serving, thread);
    }
}

/// One thread, until `end` fires.
fn begin(number: usize, end: CancellationToken) -> io::Result<Handle> {
    let runtime = linger::runtime().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("toolbay-http-{number}")).spawn(move || {
        OWN.with(|own| drop(own.set(runtime.handle().clone())));
        runtime.block_on(end.cancelled());
    })?;
    Ok(handle)
}

/// What is polled, and dropped, with another runtime as the current one.
pub(super) struct Entered<T> {
    runtime: Handle,
    work: Option<BoxFuture<'static, T>>,
}

impl<T> Entered<T> {
    pub(super) fn new<F>(runtime: Handle, begin: impl FnOnce() -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let entered = runtime.enter();
        let work: BoxFuture<'static, T> = Box::pin(begin());
        drop(entered);
        Self { runtime, work: Some(work) }
    }
}

impl<T> Future for Entered<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Self { runtime, work } = &mut *self;
        let _entered = runtime.enter();
        work.as_mut().map_or(Poll::Pending, |work| work.as_mut().poll(context))
    }
}

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.work.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    fn name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (far, near) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap().0, far.unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn connections_have_threads_of_their_own_and_what_they_begin_has_not() {
        let (threads, tasks) = (Threads::new(), TaskTracker::new());
        let (tell, told) = oneshot::channel();
        let (near, mut far) = connected().await;
        threads.serve(near, &tasks, |mut stream, lingers| async move {
            assert_eq!(stream.read_u8().await.unwrap(), 7);
            // After it has waited, too.
            let begun = tokio::spawn(async { name() }).await.unwrap();
            // But for what is to stay here.
            let stays =
                Entered::new(own().unwrap(), || async { tokio::spawn(async { name() }).await.unwrap() });
            tell.send((name(), begun, stays.await, lingers)).unwrap();
            stream.write_u8(8).await.unwrap();
        });
        far.write_u8(7).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 8);
        let (thread, begun, stays, lingers) = told.await.unwrap();
        assert!(thread.starts_with("toolbay-http-") && !begun.starts_with("toolbay-http-") && lingers);
        assert!(stays == thread && own().is_none());
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn what_is_left_on_them_ends_with_them() {
        let (threads, tasks) = (Threads::new(), TaskTracker::new());
        let (near, mut far) = connected().await;
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        threads.serve(near, &tasks, |stream, _| async move {
            std::future::pending::<()>().await;
            drop((stream, holds));
        });
        drop(threads);
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "closed");
        tasks.close();
        tasks.wait().await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn without_threads_the_runtime_that_serves_does_it() {
        let threads = Threads { each: Vec::new(), ..Threads::new() };
        let (near, mut far) = connected().await;
        threads.serve(near, &TaskTracker::new(), |mut stream, lingers| async move {
            stream.write_u8(u8::from(lingers)).await.unwrap();
        });
        assert_eq!(far.read_u8().await.unwrap(), 0);
    }
}
