//! The crate carries a copy of the contract, since a published crate cannot reach outside its directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

fn files(directory: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wit") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(files)
}

#[test]
fn the_copy_of_the_contract_is_the_contract() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let original = here.join("../../wit");
    // Only in the repository is there anything to compare with.
    if original.is_dir() {
        assert_eq!(files(&here.join("wit"))?, files(&original)?, "copy wit/*.wit to sdk/rust/wit/");
    }
    Ok(())
}
