//! Tools for files: read, list, search, write, patch.
//!
//! The tools use the host's `files` interface, so that globs, the guard against blind overwrites and the audit apply;
//! `std::fs` would bypass them. The declared `**` means everything that the operator grants.

mod glob;
pub mod list_dir;
mod patch;
pub mod patch_file;
pub mod read_file;
pub mod search_files;
mod shown_name;
mod walk;
pub mod write_file;

toolbay_sdk::plugin! {
    tools: [
        read_file::read_file,
        list_dir::list_dir,
        search_files::search_files,
        write_file::write_file,
        patch_file::patch_file,
    ],
}
