//! The sandbox that guests run in: wasmtime with the settings of Toolbay, guest entries with every limit, and the
//! isolation of guests from one another: fair permits, circuit breakers, the memory budget. It also compiles
//! components, within limits of their own, and caches the code.
//!
//! The crate does not know what a guest can import. The data of a store is a type of the caller that implements
//! [`GuestData`](guest_data::GuestData), and the caller links the imports.

#![expect(missing_debug_implementations, reason = "types that hold wasmtime's handles have nothing to show")]

pub mod admission;
pub mod blocking;
pub mod circuit_breaker;
pub mod compile;
pub mod cpu_limiter;
pub mod engine;
pub mod engines;
pub mod guest_data;
pub mod heap;
pub mod host_memory;
pub mod idle_instances;
pub mod instance;
pub mod native;
mod panic_boundary;
pub mod process_sandbox;
pub mod resource_limiter;
pub mod shortage;
pub mod stdio;
