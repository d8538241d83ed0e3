//! What the host could not get of the system: memory, threads, file descriptors. None of it is a guest's fault.
//!
//! wasmtime and the capabilities report it as an error of the system, somewhere in a chain of errors. A guest that is refused
//! by a capability for that reason may also trap; so a trap is only blamed on the guest if the host lacks nothing.

use std::io;

use rustix::io::Errno;

/// Bytes that the host must be able to allocate, or its memory is used up.
const SPARE_BYTES: usize = 1 << 20;

/// Errors of the system that say that a resource is used up. No argument of a call leads to them.
fn is_shortage(error: Errno) -> bool {
    [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::AGAIN].contains(&error)
}

/// What the host lacked, if an error came of that.
pub(crate) fn of_error(error: &wasmtime::Error) -> Option<String> {
    if error.downcast_ref::<wasmtime::OutOfMemory>().is_some() {
        return Some(error.root_cause().to_string());
    }
    error.chain().find_map(|cause| {
        let system = cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        let system = system.or_else(|| cause.downcast_ref::<Errno>().copied())?;
        is_shortage(system).then(|| error.to_string())
    })
}

/// What the host lacks now. It costs a thread, so it is only asked when a guest has trapped.
pub(crate) fn now() -> Option<&'static str> {
    if rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0).is_err_and(is_shortage) {
        return Some("file descriptors");
    }
    let mut spare: Vec<u8> = Vec::new();
    if spare.try_reserve_exact(SPARE_BYTES).is_err() {
        return Some("memory");
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
            assert!(of_error(&error).is_some(), "{error:?}");
        }
        for error in
            [system(Errno::NOENT), wasmtime::Error::msg("unreachable"), wasmtime::Trap::OutOfFuel.into()]
        {
            assert_eq!(of_error(&error), None, "{error:?}");
        }
    }

    #[test]
    fn this_machine_lacks_nothing() {
        assert_eq!(now(), None);
    }
}
