//! The document of prompts, resources and icons. Instead of a text or bytes, a `"file"` may name a path relative to the
//! document. `plugin!` and, for other languages, `toolbay build` embed the files.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// MIME types by file extension.
const KINDS: [(&str, &str); 14] = [
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
];

/// Reads a document, and returns it with its files embedded, and the paths of all files read.
///
/// # Errors
/// A file cannot be read, or is of the wrong kind for its place.
pub fn embed(folder: &Path, file: &str) -> Result<(Vec<u8>, Vec<PathBuf>), String> {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let mut document: Value = serde_json::from_str(&text).map_err(|error| format!("`{file}`: {error}"))?;
    let mut embedder =
        FileEmbedder { dir: path.parent().map_or_else(PathBuf::new, Path::to_path_buf), files: vec![path] };
    for key in ["resources", "templates"] {
        for one in each(&mut document, key) {
            embedder.embed(one, OfferForm::TextOrBlob)?;
        }
    }
    for prompt in each(&mut document, "prompts") {
        for message in each(prompt, "messages") {
            if let Some(content) = message.get_mut("content") {
                embedder.embed(content, OfferForm::of(content))?;
            }
        }
    }
    for icons in document.get_mut("icons").and_then(Value::as_object_mut).into_iter().flatten() {
        for icon in icons.1.as_array_mut().into_iter().flatten() {
            embedder.embed(icon, OfferForm::DataUri)?;
        }
    }
    Ok((document.to_string().into_bytes(), embedder.files))
}

fn each<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The member that holds the bytes of a file in the document.
#[derive(Clone, Copy)]
enum OfferForm {
    /// `text` for UTF-8, otherwise `blob`.
    TextOrBlob,
    Text,
    /// `data`.
    Data,
    /// `src`.
    DataUri,
}

impl OfferForm {
    fn of(content: &Value) -> Self {
        match content.get("type").and_then(Value::as_str) {
            Some("image" | "audio") => Self::Data,
            _ => Self::Text,
        }
    }
}

/// Embeds files relative to the document.
struct FileEmbedder {
    dir: PathBuf,
    files: Vec<PathBuf>,
}

impl FileEmbedder {
    /// Replaces the name of a file by its bytes.
    fn embed(&mut self, holder: &mut Value, form: OfferForm) -> Result<(), String> {
        let Some(holder) = holder.as_object_mut() else { return Ok(()) };
        let Some(file) = holder.remove("file") else { return Ok(()) };
        let Some(file) = file.as_str() else { return Err("`file` is a path".to_owned()) };
        let path = self.dir.join(file);
        let bytes = std::fs::read(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let kind = KINDS.iter().find(|(end, _)| path.extension().is_some_and(|one| one == *end));
        let kind = kind.map(|(_, kind)| *kind);
        self.files.push(path);
        let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
        let (key, value) = match (form, String::from_utf8(bytes)) {
            (OfferForm::TextOrBlob | OfferForm::Text, Ok(text)) => ("text", text),
            (OfferForm::Text, Err(_)) => return Err(format!("`{file}` is not UTF-8 text")),
            (OfferForm::TextOrBlob, Err(error)) => ("blob", base64(error.as_bytes())),
            (OfferForm::Data, text) => ("data", base64(&bytes_of(text))),
            (OfferForm::DataUri, text) => {
                let Some(kind) = kind else {
                    return Err(format!("`{file}` has no known file extension"));
                };
                ("src", format!("data:{kind};base64,{}", base64(&bytes_of(text))))
            }
        };
        if let (OfferForm::TextOrBlob | OfferForm::Data, Some(kind)) = (form, kind) {
            add_kind(holder, kind);
        }
        holder.insert(key.to_owned(), Value::String(value));
        Ok(())
    }
}

fn add_kind(holder: &mut Map<String, Value>, kind: &str) {
    if !holder.contains_key("mime_type") {
        holder.insert("mime_type".to_owned(), Value::from(kind));
    }
}

fn bytes_of(text: Result<String, std::string::FromUtf8Error>) -> Vec<u8> {
    text.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_stand_where_their_names_stood() {
        let dir = std::env::temp_dir().join(format!("toolbay-offers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in [("a.md", &b"# A"[..]), ("b.png", b"\x89PNG"), ("c", b"\xff")] {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        let write = |document: &Value| std::fs::write(dir.join("offers.json"), document.to_string()).unwrap();
        write(&json!({"version": 1,
            "resources": [{"path": "a", "name": "A", "file": "a.md"}, {"path": "c", "name": "C", "file": "c"}],
            "prompts": [{"name": "p", "messages": [
                {"role": "user", "content": {"type": "text", "file": "a.md"}},
                {"role": "user", "content": {"type": "image", "file": "b.png"}}]}],
            "icons": {"t": [{"file": "b.png"}]},
        }));
        let (document, files) = embed(&dir, "offers.json").unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(files.len(), 6);
        assert_eq!(
            document["resources"][0],
            json!({"path": "a", "name": "A", "text": "# A", "mime_type": "text/markdown"})
        );
        assert_eq!(document["resources"][1], json!({"path": "c", "name": "C", "blob": "/w=="}));
        let messages = &document["prompts"][0]["messages"];
        assert_eq!(messages[0]["content"], json!({"type": "text", "text": "# A"}));
        assert_eq!(
            messages[1]["content"],
            json!({"type": "image", "data": "iVBORw==", "mime_type": "image/png"})
        );
        assert_eq!(document["icons"]["t"][0], json!({"src": "data:image/png;base64,iVBORw=="}));
        write(&json!({"prompts": [{"messages": [{"content": {"type": "text", "file": "c"}}]}]}));
        assert!(embed(&dir, "offers.json").unwrap_err().contains("UTF-8"));
        write(&json!({"resources": [{"file": "absent"}]}));
        assert!(embed(&dir, "offers.json").unwrap_err().contains("absent"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
