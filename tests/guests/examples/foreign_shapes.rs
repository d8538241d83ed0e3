//! A plain component: plain WIT, plain `wit-bindgen`. Each function of `shapes` returns its argument, to test the
//! conversion in both directions. The other functions behave well or badly.

wit_bindgen::generate!({
    inline: r#"
        package stranger:geometry@1.2.0;

        interface shapes {
            enum color { red, dark-green }
            flags rights { read, write, run }
            record point { x: s32, y: option<s32>, dark-side: list<u8> }
            variant shape { empty, circle(f64), polygon(list<point>) }

            of-bool: func(v: bool) -> bool;
            of-u8: func(v: u8) -> u8;
            of-s16: func(v: s16) -> s16;
            of-u32: func(v: u32) -> u32;
            of-s64: func(v: s64) -> s64;
            of-u64: func(v: u64) -> u64;
            of-f32: func(v: f32) -> f32;
            of-f64: func(v: f64) -> f64;
            of-char: func(v: char) -> char;
            of-string: func(v: string) -> string;
            of-bytes: func(v: list<u8>) -> list<u8>;
            of-list: func(v: list<s32>) -> list<s32>;
            of-tuple: func(v: tuple<string, u8>) -> tuple<string, u8>;
            of-record: func(v: point) -> point;
            of-variant: func(v: shape) -> shape;
            of-enum: func(v: color) -> color;
            of-flags: func(v: rights) -> rights;
            of-option: func(v: option<string>) -> option<string>;
            of-options: func(v: option<option<u8>>) -> option<option<u8>>;
            of-results: func(v: list<result<u8, string>>) -> list<result<u8, string>>;
        }

        interface things {
            resource thing { constructor(); name: func() -> string; }
            open: func() -> thing;
            count: func(of: list<borrow<thing>>) -> u32;
            about: func() -> string;
        }

        world stranger {
            export shapes;
            export things;
            export divide: func(a: s32, b: s32) -> result<s32, string>;
            export refuse: func(code: u8) -> result<_, tuple<u8, string>>;
            export fail: func() -> result;
            export nothing: func();
            export repeat: func(text: string, times: u32) -> string;
            export count-to: func(most: u32) -> list<u64>;
            export spin: func();
            export trap: func();
            export allocate: func(mebibytes: u32) -> u32;
            // Not `read`: the export becomes a symbol of the core module, and libc has one of that name.
            export read-file: func(path: string) -> result<string, string>;
            export now: func() -> u64;
        }
    "#,
});

use exports::stranger::geometry::shapes::{self, Color, Point, Rights, Shape};
use exports::stranger::geometry::things::{self, GuestThing, ThingBorrow};

struct Stranger;

macro_rules! back {
    ($($name:ident: $type:ty),* $(,)?) => { $(fn $name(v: $type) -> $type { v })* };
}

impl shapes::Guest for Stranger {
    back! {
        of_bool: bool, of_u8: u8, of_s16: i16, of_u32: u32, of_s64: i64, of_u64: u64, of_f32: f32, of_f64: f64,
        of_char: char, of_string: String, of_bytes: Vec<u8>, of_list: Vec<i32>, of_tuple: (String, u8),
        of_record: Point, of_variant: Shape, of_enum: Color, of_flags: Rights, of_option: Option<String>,
        of_options: Option<Option<u8>>, of_results: Vec<Result<u8, String>>,
    }
}

struct Thing;

impl GuestThing for Thing {
    fn new() -> Self {
        Self
    }
    fn name(&self) -> String {
        "thing".to_owned()
    }
}

impl things::Guest for Stranger {
    type Thing = Thing;

    fn open() -> things::Thing {
        things::Thing::new(Thing)
    }
    fn count(of: Vec<ThingBorrow<'_>>) -> u32 {
        of.len() as u32
    }
    fn about() -> String {
        "things".to_owned()
    }
}

impl Guest for Stranger {
    fn divide(a: i32, b: i32) -> Result<i32, String> {
        a.checked_div(b).ok_or_else(|| format!("{a} cannot be divided by {b}"))
    }
    fn refuse(code: u8) -> Result<(), (u8, String)> {
        if code == 0 { Ok(()) } else { Err((code, "as asked".to_owned())) }
    }
    fn fail() -> Result<(), ()> {
        Err(())
    }
    fn nothing() {}
    fn repeat(text: String, times: u32) -> String {
        text.repeat(times as usize)
    }
    fn count_to(most: u32) -> Vec<u64> {
        (0..u64::from(most)).collect()
    }
    fn spin() {
        loop {
            std::hint::spin_loop();
        }
    }
    fn trap() {
        panic!("as asked");
    }
    fn allocate(mebibytes: u32) -> u32 {
        let block = vec![1u8; (mebibytes as usize) << 20];
        std::hint::black_box(&block).iter().map(|byte| u32::from(*byte)).sum()
    }
    fn read_file(path: String) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }
    fn now() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

export!(Stranger);
