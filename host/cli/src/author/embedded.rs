//! The sources of the SDKs, which `toolbay new` puts into a project: for each a list of its files, path and text. Written by
//! the build script.

include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
