//! Contains panics of the engine, while a guest runs and while its store is dropped.
//!
//! A guest can reach panics of the engine ([the list](https://github.com/bytecodealliance/wasmtime/security/advisories)
//! has several), and the end of such a guest may panic once more. Such a panic costs the guest its call and affects
//! nobody else. A value that panicked is dropped and never used again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project_lite::pin_project! {
    /// The future of a guest. It returns an error if it panics, and its drop does not panic.
    pub(super) struct ContainedFuture<F> {
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for ContainedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            drop_contained(|| this.project().future.set(None));
        }
    }
}

impl<F> ContainedFuture<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Some(future) }
    }
}

/// A guest made the engine panic. The panic hook has logged where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EnginePanic;

impl<F: Future> Future for ContainedFuture<F> {
    type Output = Result<F::Output, EnginePanic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Ready(Err(EnginePanic)) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(_panic) => {
                drop_contained(|| this.future.set(None));
                Poll::Ready(Err(EnginePanic))
            }
        }
    }
}

/// A value whose drop does not panic.
#[derive(Debug)]
pub(super) struct ContainedDrop<T>(Option<T>);

impl<T> ContainedDrop<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The value, which is there until the drop.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }
}

impl<T> Drop for ContainedDrop<T> {
    fn drop(&mut self) {
        drop_contained(|| drop(self.0.take()));
    }
}

fn drop_contained(drop: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(drop)).is_err() {
        tracing::error!("the engine panicked when it dropped an instance");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped, and when it is polled, if it says so.
    struct Bomb {
        on_poll: bool,
    }

    impl Future for Bomb {
        type Output = u32;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
            assert!(!self.on_poll, "polled");
            Poll::Ready(7)
        }
    }

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[tokio::test]
    async fn a_panic_of_a_guest_or_of_its_end_goes_nowhere() {
        assert_eq!(ContainedFuture::new(Bomb { on_poll: true }).await, Err(EnginePanic));
        assert_eq!(ContainedFuture::new(Bomb { on_poll: false }).await, Ok(7));
        drop(ContainedFuture::new(Bomb { on_poll: false }));
        drop(ContainedDrop::new(Bomb { on_poll: false }));
    }
}
