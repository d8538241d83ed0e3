//! Detects that the host has run out of memory, threads or file descriptors.
//!
//! wasmtime and the capabilities report a shortage as a system error, somewhere in a chain of errors. A guest may also
//! trap because a capability failed during a shortage. A trap is therefore attributed to the guest only if [`probe`]
//! finds no shortage.

use std::io;

use rustix::io::Errno;

/// Memory.
pub(crate) const MEMORY: &str = "memory";
/// The address space of a process with a limit. Without a pool, an instance reserves 4 GiB for its memory.
pub(crate) const ADDRESS_SPACE: &str = "address space below the limit of the process (`ulimit -v`)";
/// The host is out of memory if it cannot allocate this many bytes.
const SPARE_BYTES: usize = 1 << 20;

/// Whether the error means that a resource is exhausted. The arguments of a call cannot cause these errors.
fn is_shortage(error: Errno) -> bool {
    [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::AGAIN].contains(&error)
}

/// The resource that the host lacked when an error arose; `None` if the error has another cause.
pub(crate) fn from_error(error: &wasmtime::Error) -> Option<&'static str> {
    if error.downcast_ref::<wasmtime::OutOfMemory>().is_some() {
        return Some(memory());
    }
    error.chain().find_map(|cause| {
        let system = cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        let system = system.or_else(|| cause.downcast_ref::<Errno>().copied())?;
        is_shortage(system).then_some(match system {
            Errno::MFILE | Errno::NFILE => "file descriptors",
            Errno::NOBUFS => "network buffers",
            Errno::AGAIN => "threads or memory",
            _ => memory(),
        })
    })
}

/// What a process without memory lacks. A limit of its address space is reached long before the machine has no memory.
fn memory() -> &'static str {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    if limit.is_some() { ADDRESS_SPACE } else { MEMORY }
}

/// The resource that the host lacks now. The probe starts a thread, so the host runs it only after a trap.
pub fn probe() -> Option<&'static str> {
    if rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0).is_err_and(is_shortage) {
        return Some("file descriptors");
    }
    let mut spare: Vec<u8> = Vec::new();
    if spare.try_reserve_exact(SPARE_BYTES).is_err() {
        return Some(memory());
    }
    match std::thread::Builder::new().name("toolbay-probe".to_owned()).spawn(|| {}) {
        Ok(_ends_at_once) => None,
        Err(_) => Some("threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_found_wherever_it_is_in_the_chain() {
        let system = |errno: Errno| wasmtime::Error::from(io::Error::from(errno));
        for error in [
            system(Errno::NOMEM),
            system(Errno::MFILE).context("failed to open"),
            wasmtime::Error::from(Errno::NOMEM).context("mmap failed").context("no instance"),
        ] {
            assert!(from_error(&error).is_some(), "{error:?}");
        }
        for error in
            [system(Errno::NOENT), wasmtime::Error::msg("unreachable"), wasmtime::Trap::OutOfFuel.into()]
        {
            assert_eq!(from_error(&error), None, "{error:?}");
        }
    }

    #[test]
    fn this_machine_has_no_shortage() {
        assert_eq!(probe(), None);
    }
}
