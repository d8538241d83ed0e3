//! Paths of the guests.
