//! The guests are the examples of this package.
