//! Checksums of texts and files.
//!
//! The tools are separate because they need different grants: without file access, an operator still has
//! `hash_text`.

mod algorithm;

use toolbay_sdk::prelude::*;
use toolbay_sdk::{context, files};

pub use algorithm::Algorithm;
use algorithm::Hasher;

/// Large enough to need few calls of the host, small enough for any memory limit.
const CHUNK_BYTES: u64 = 1 << 20;

/// A checksum.
#[data]
#[derive(Debug, PartialEq)]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The checksum in lower-case hexadecimal.
    pub hex: String,
    /// The number of bytes.
    pub bytes: u64,
}

/// Compute the checksum of a text (of its UTF-8 bytes).
#[tool(toolset = "hash", tags = ["checksum"], read_only, idempotent, closed_world)]
pub fn hash_text(
    /// The text.
    text: String,
    /// The algorithm.
    #[arg(default = Algorithm::Sha256)]
    algorithm: Algorithm,
) -> Rendered<Checksum> {
    let mut hasher = Hasher::new(&algorithm);
    hasher.update(text.as_bytes());
    checksum(algorithm, hasher, text.len() as u64)
}

/// Compute the checksum of a file.
#[tool(
    toolset = "hash", tags = ["checksum", "file"], read_only, idempotent, closed_world,
    fs_read = "**", reason = "reads the file you name",
)]
pub fn hash_file(
    /// Path of the file.
    #[arg(length(min = 1))]
    path: String,
    /// The algorithm.
    #[arg(default = Algorithm::Sha256)]
    algorithm: Algorithm,
) -> Result<Rendered<Checksum>> {
    let mut hasher = Hasher::new(&algorithm);
    let mut bytes = 0;
    for chunk in files::chunks(&path, CHUNK_BYTES) {
        context::check_cancelled()?;
        let chunk = chunk?;
        hasher.update(&chunk);
        bytes += chunk.len() as u64;
    }
    Ok(checksum(algorithm, hasher, bytes))
}

fn checksum(algorithm: Algorithm, hasher: Hasher, bytes: u64) -> Rendered<Checksum> {
    let hex = hasher.hex();
    Rendered { text: hex.clone(), data: Checksum { algorithm, hex, bytes } }
}

plugin! { tools: [hash_text, hash_file] }

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{FakeHost, call, describe};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn the_known_checksums_of_abc() {
        let cases = [
            (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                Algorithm::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (Algorithm::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
            (Algorithm::Crc32, "352441c2"),
        ];
        for (algorithm, hex) in cases {
            assert_eq!(hash_text("abc".to_owned(), algorithm).text, hex);
        }
    }

    #[test]
    fn a_file_is_read_in_pieces_and_hashes_like_its_text() {
        let text = "0123456789abcdef".repeat(200_000);
        let fake = FakeHost::new().file("big", &text);
        let of_file = fake.run(|| hash_file("big".to_owned(), Algorithm::Blake3)).unwrap();
        assert_eq!(of_file, hash_text(text, Algorithm::Blake3));
        assert_eq!(of_file.data.bytes, 3_200_000);
    }

    #[test]
    fn an_empty_file_has_a_checksum() {
        let fake = FakeHost::new().file("empty", "");
        assert_eq!(fake.run(|| hash_file("empty".to_owned(), Algorithm::Crc32)).unwrap().text, "00000000");
    }

    #[test]
    fn a_file_out_of_reach_is_not_available() {
        let fake = FakeHost::new().file("secret/a", "x").deny("secret");
        let error = fake.run(|| hash_file("secret/a".to_owned(), Algorithm::Crc32)).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::NotAvailable, Some("denied")));
    }

    #[test]
    fn a_cancelled_call_ends() {
        let fake = FakeHost::new().file("a", "x").cancelled_after(0);
        assert!(fake.run(|| hash_file("a".to_owned(), Algorithm::Crc32)).is_err());
    }

    #[test]
    fn the_model_picks_the_algorithm_by_name() {
        let output = call::<hash_text>(json!({"text": "abc", "algorithm": "crc32"})).unwrap();
        assert_eq!(output.structured.as_deref(), Some(r#"{"algorithm":"crc32","hex":"352441c2","bytes":3}"#));
        assert_eq!(call::<hash_text>(json!({"text": "abc"})).unwrap().value.len(), 64);
        assert!(
            describe::<hash_text>().input_schema.contains(r#""enum":["sha256","sha512","blake3","crc32"]"#)
        );
    }
}
