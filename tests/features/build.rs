//! Nothing: the manifest is what this package is for.

fn main() {}
