//! The coordination of replicas, as state machines without I/O and without a clock.
