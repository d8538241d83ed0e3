/// Reads a file.
#[toolbay_macros::tool(fs_read = "**")]
async fn read(path: String) -> String {
    path
}

fn main() {}
