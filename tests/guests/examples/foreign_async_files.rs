//! A component that reads, writes and lists files through `wasi:filesystem` 0.3.

wit_bindgen::generate!({
    inline: r#"
        package stranger:archive;

        world archive {
            import wasi:filesystem/preopens@0.3.0;
            export read: async func(path: string) -> result<string, string>;
            export write: async func(path: string, text: string, times: u32) -> result<u64, string>;
            export names: async func() -> result<list<string>, string>;
            export make-folder: async func(path: string) -> result<_, string>;
            export link: async func(target: string, path: string) -> result<_, string>;
            export grow: async func(path: string, size: u64) -> result<_, string>;
        }

        package wasi:filesystem@0.3.0 {
            interface types {
                variant descriptor-type {
                    block-device, character-device, directory, fifo, symbolic-link, regular-file, socket,
                    other(option<string>),
                }
                flags descriptor-flags {
                    read, write, file-integrity-sync, data-integrity-sync, requested-write-sync, mutate-directory,
                }
                flags path-flags { symlink-follow }
                flags open-flags { create, directory, exclusive, truncate }
                record instant { seconds: s64, nanoseconds: u32 }
                record descriptor-stat {
                    %type: descriptor-type,
                    link-count: u64,
                    size: u64,
                    data-access-timestamp: option<instant>,
                    data-modification-timestamp: option<instant>,
                    status-change-timestamp: option<instant>,
                }
                record directory-entry { %type: descriptor-type, name: string }
                variant error-code {
                    access, already, bad-descriptor, busy, deadlock, quota, exist, file-too-large,
                    illegal-byte-sequence, in-progress, interrupted, invalid, io, is-directory, loop,
                    too-many-links, message-size, name-too-long, no-device, no-entry, no-lock,
                    insufficient-memory, insufficient-space, not-directory, not-empty, not-recoverable,
                    unsupported, no-tty, no-such-device, overflow, not-permitted, pipe, read-only, invalid-seek,
                    text-file-busy, cross-device, other(option<string>),
                }
                resource descriptor {
                    read-via-stream: func(offset: u64) -> tuple<stream<u8>, future<result<_, error-code>>>;
                    write-via-stream: func(data: stream<u8>, offset: u64) -> future<result<_, error-code>>;
                    read-directory: func() -> tuple<stream<directory-entry>, future<result<_, error-code>>>;
                    create-directory-at: async func(path: string) -> result<_, error-code>;
                    stat: async func() -> result<descriptor-stat, error-code>;
                    set-size: async func(size: u64) -> result<_, error-code>;
                    symlink-at: async func(old-path: string, new-path: string) -> result<_, error-code>;
                    open-at: async func(path-flags: path-flags, path: string, open-flags: open-flags, %flags: descriptor-flags) -> result<descriptor, error-code>;
                }
            }
            interface preopens {
                use types.{descriptor};
                get-directories: func() -> list<tuple<descriptor, string>>;
            }
        }
    "#,
    generate_all,
});

use wasi::filesystem::preopens::get_directories;
use wasi::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

struct Archive;

fn words(code: ErrorCode) -> String {
    format!("{code:?}")
}

fn folder() -> Result<Descriptor, String> {
    get_directories().into_iter().next().map(|(folder, _)| folder).ok_or_else(|| "no folder".to_owned())
}

async fn open(path: String, open: OpenFlags, flags: DescriptorFlags) -> Result<Descriptor, String> {
    folder()?.open_at(PathFlags::SYMLINK_FOLLOW, path, open, flags).await.map_err(words)
}

impl Guest for Archive {
    async fn read(path: String) -> Result<String, String> {
        let file = open(path, OpenFlags::empty(), DescriptorFlags::READ).await?;
        let (bytes, end) = file.read_via_stream(0);
        let bytes = bytes.collect().await;
        end.await.map_err(words)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn write(path: String, text: String, times: u32) -> Result<u64, String> {
        let file = open(path, OpenFlags::CREATE | OpenFlags::TRUNCATE, DescriptorFlags::WRITE).await?;
        let (mut writer, reader) = wit_stream::new();
        let end = file.write_via_stream(reader, 0);
        for _ in 0..times {
            if !writer.write_all(text.clone().into_bytes()).await.is_empty() {
                break;
            }
        }
        drop(writer);
        end.await.map_err(words)?;
        Ok(file.stat().await.map_err(words)?.size)
    }

    async fn names() -> Result<Vec<String>, String> {
        let (entries, end) = folder()?.read_directory();
        let mut names: Vec<String> = entries.collect().await.into_iter().map(|entry| entry.name).collect();
        end.await.map_err(words)?;
        names.sort();
        Ok(names)
    }

    async fn make_folder(path: String) -> Result<(), String> {
        folder()?.create_directory_at(path).await.map_err(words)
    }

    async fn link(target: String, path: String) -> Result<(), String> {
        folder()?.symlink_at(target, path).await.map_err(words)
    }

    async fn grow(path: String, size: u64) -> Result<(), String> {
        let file = open(path, OpenFlags::empty(), DescriptorFlags::WRITE).await?;
        file.set_size(size).await.map_err(words)
    }
}

export!(Archive);
