//! A component that keeps entries through `wasi:keyvalue`.

wit_bindgen::generate!({
    inline: r#"
        package stranger:shelf;

        world shelf {
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:keyvalue/batch@0.2.0-draft;

            export put: func(bucket: string, key: string, value: string) -> result<_, string>;
            export take: func(bucket: string, key: string) -> result<option<string>, string>;
            export forget: func(bucket: string, key: string) -> result<bool, string>;
            export add: func(bucket: string, key: string, number: u64) -> result<u64, string>;
            /// Writes `count` entries at once, and counts the keys and the pages of a listing.
            export fill: func(bucket: string, count: u32) -> result<tuple<u32, u32>, string>;
            /// Reads one entry as often as asked in one call.
            export copies: func(bucket: string, key: string, count: u32) -> result<u32, string>;
            /// Asks for a page with a cursor that no page had.
            export stray: func(bucket: string) -> result<u32, string>;
            export hoard: func(bucket: string, count: u32) -> result<u32, string>;
        }

        package wasi:keyvalue@0.2.0-draft {
            interface store {
                variant error { no-such-store, access-denied, other(string) }
                record key-response { keys: list<string>, cursor: option<u64> }
                resource bucket {
                    get: func(key: string) -> result<option<list<u8>>, error>;
                    set: func(key: string, value: list<u8>) -> result<_, error>;
                    delete: func(key: string) -> result<_, error>;
                    exists: func(key: string) -> result<bool, error>;
                    list-keys: func(cursor: option<u64>) -> result<key-response, error>;
                }
                open: func(identifier: string) -> result<bucket, error>;
            }
            interface atomics {
                use store.{bucket, error};
                increment: func(bucket: borrow<bucket>, key: string, delta: u64) -> result<u64, error>;
            }
            interface batch {
                use store.{bucket, error};
                get-many: func(bucket: borrow<bucket>, keys: list<string>) -> result<list<option<tuple<string, list<u8>>>>, error>;
                set-many: func(bucket: borrow<bucket>, key-values: list<tuple<string, list<u8>>>) -> result<_, error>;
                delete-many: func(bucket: borrow<bucket>, keys: list<string>) -> result<_, error>;
            }
        }
    "#,
    generate_all,
});

use wasi::keyvalue::store::{Bucket, Error, open};
use wasi::keyvalue::{atomics, batch};

struct Storage;

fn words(error: Error) -> String {
    match error {
        Error::NoSuchStore => "no such store".to_owned(),
        Error::AccessDenied => "access denied".to_owned(),
        Error::Other(text) => text,
    }
}

fn with<T>(bucket: &str, work: impl FnOnce(&Bucket) -> Result<T, Error>) -> Result<T, String> {
    open(bucket).and_then(|bucket| work(&bucket)).map_err(words)
}

impl Guest for Storage {
    fn put(bucket: String, key: String, value: String) -> Result<(), String> {
        with(&bucket, |bucket| bucket.set(&key, value.as_bytes()))
    }
    fn take(bucket: String, key: String) -> Result<Option<String>, String> {
        let found = with(&bucket, |bucket| bucket.get(&key))?;
        Ok(found.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }
    fn forget(bucket: String, key: String) -> Result<bool, String> {
        with(&bucket, |bucket| {
            let was = bucket.exists(&key)?;
            bucket.delete(&key)?;
            Ok(was && !bucket.exists(&key)?)
        })
    }
    fn add(bucket: String, key: String, number: u64) -> Result<u64, String> {
        with(&bucket, |bucket| atomics::increment(bucket, &key, number))
    }
    fn fill(bucket: String, count: u32) -> Result<(u32, u32), String> {
        with(&bucket, |bucket| {
            let entries: Vec<_> = (0..count).map(|n| (format!("key-{n:05}"), b"v".to_vec())).collect();
            batch::set_many(bucket, &entries)?;
            let (mut keys, mut pages, mut cursor) = (Vec::new(), 0, None);
            loop {
                let page = bucket.list_keys(cursor)?;
                keys.extend(page.keys);
                pages += 1;
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let found = batch::get_many(bucket, &keys)?.iter().flatten().count() as u32;
            batch::delete_many(bucket, &keys)?;
            Ok((found, pages))
        })
    }
    fn copies(bucket: String, key: String, count: u32) -> Result<u32, String> {
        let keys = vec![key; count as usize];
        with(&bucket, |bucket| batch::get_many(bucket, &keys)).map(|all| all.len() as u32)
    }
    fn stray(bucket: String) -> Result<u32, String> {
        with(&bucket, |bucket| bucket.list_keys(Some(7))).map(|page| page.keys.len() as u32)
    }
    fn hoard(bucket: String, count: u32) -> Result<u32, String> {
        let open: Result<Vec<Bucket>, Error> = (0..count).map(|_| open(&bucket)).collect();
        open.map(|all| all.len() as u32).map_err(words)
    }
}

export!(Storage);
