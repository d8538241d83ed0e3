//! An echo for hosts of Extism plugins, in the shape in which hyper-mcp calls tools (its plugins of the second kind).
//!
//! Without `std` and so without the plugin development kit, which needs a target (`wasm32-wasip1` or
//! `wasm32-unknown-unknown`) that not every toolchain has: this one is built for `wasm32-wasip2` and linked as a plain
//! module. It does what the kit does: reads the input, parses JSON, writes JSON.

#![no_std]
// The interface of Extism is one of raw offsets.
#![allow(unsafe_code)]

extern crate alloc;

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;

use serde::{Deserialize, Serialize};

#[link(wasm_import_module = "extism:host/env")]
unsafe extern "C" {
    fn input_length() -> u64;
    fn input_load_u8(at: u64) -> u8;
    fn input_load_u64(at: u64) -> u64;
    fn alloc(length: u64) -> u64;
    fn store_u8(at: u64, byte: u8);
    fn store_u64(at: u64, bytes: u64);
    fn output_set(at: u64, length: u64);
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    arguments: Arguments<'a>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    content: [Content<'a>; 1],
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'a str,
    text: &'a str,
}

const TOOLS: &str = r#"{"tools":[{"name":"echo","description":"Says the text again.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}"#;

/// What tools there are.
#[unsafe(no_mangle)]
pub extern "C" fn list_tools() -> i32 {
    answer(TOOLS);
    0
}

/// The text again.
#[unsafe(no_mangle)]
pub extern "C" fn call_tool() -> i32 {
    ROOM.clear();
    let input = input();
    let Ok(call) = serde_json::from_slice::<Call<'_>>(&input) else { return 1 };
    let outcome = Outcome { content: [Content { r#type: "text", text: &call.request.arguments.text }] };
    let Ok(text) = serde_json::to_string::<Outcome<'_>>(&outcome) else { return 1 };
    answer(&text);
    0
}

fn input() -> Vec<u8> {
    // SAFETY: the host answers for every offset below the length.
    unsafe {
        let length = input_length();
        let words = (0..length / 8).flat_map(|n| input_load_u64(n * 8).to_le_bytes());
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend(words);
        bytes.extend((length / 8 * 8..length).map(|at| input_load_u8(at)));
        bytes
    }
}

fn answer(text: &str) {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    // SAFETY: the offsets are within what the host allocated.
    unsafe {
        let at = alloc(text.len() as u64);
        for (n, word) in words.iter().enumerate() {
            store_u64(at + n as u64 * 8, u64::from_le_bytes(*word));
        }
        for (n, byte) in rest.iter().enumerate() {
            store_u8(at + (words.len() * 8 + n) as u64, *byte);
        }
        output_set(at, text.len() as u64);
    }
}

/// Memory that is given out from one end to the other and all taken back when the next call begins.
struct Room(UnsafeCell<(usize, [u8; SIZE])>);

const SIZE: usize = 4 << 20;

#[global_allocator]
static ROOM: Room = Room(UnsafeCell::new((0, [0; SIZE])));

impl Room {
    fn clear(&self) {
        // SAFETY: there is one thread, and nothing of a call outlives it.
        unsafe { (*self.0.get()).0 = 0 }
    }
}

// SAFETY: a module without threads.
unsafe impl Sync for Room {}

// SAFETY: each piece is within the room, aligned, and given out once.
unsafe impl GlobalAlloc for Room {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe {
            let room = self.0.get();
            let start = (&raw mut (*room).1).cast::<u8>();
            let at = (*room).0 + start.add((*room).0).align_offset(layout.align());
            if at + layout.size() > SIZE {
                return core::ptr::null_mut();
            }
            (*room).0 = at + layout.size();
            start.add(at)
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// The one function of the C library that the compiler calls here.
///
/// # Safety
/// `n` bytes can be read at both places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's.
    let pair = |at| unsafe { (i32::from(*a.add(at)), i32::from(*b.add(at))) };
    (0..n).map(pair).map(|(a, b)| a - b).find(|difference| *difference != 0).unwrap_or_default()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
