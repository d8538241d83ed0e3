//! The sources of the SDKs for `toolbay new`: a list of paths and texts for each. The build script generates it.

include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
