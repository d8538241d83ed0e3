//! The schemas of types of the standard library, and of JSON itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Field, Node, Schema, SchemaShape, of};

macro_rules! schemas {
    ($($ty:ty => $shape:expr;)*) => {
        $(impl Schema for $ty {
            const SCHEMA: Node = Node::new($shape);
        })*
    };
}

const fn integer(minimum: Option<i64>, maximum: Option<i64>) -> SchemaShape {
    SchemaShape::Integer { minimum, maximum }
}

const TEXT: SchemaShape = SchemaShape::String { format: "" };

schemas! {
    () => SchemaShape::Null;
    bool => SchemaShape::Boolean;
    char => TEXT;
    str => TEXT;
    String => TEXT;
    Path => TEXT;
    PathBuf => TEXT;
    IpAddr => SchemaShape::String { format: "ip" };
    Ipv4Addr => SchemaShape::String { format: "ipv4" };
    Ipv6Addr => SchemaShape::String { format: "ipv6" };
    f32 => SchemaShape::Number;
    f64 => SchemaShape::Number;
    i8 => integer(Some(-128), Some(127));
    i16 => integer(Some(-32_768), Some(32_767));
    i32 => integer(None, None);
    i64 => integer(None, None);
    isize => integer(None, None);
    u8 => integer(Some(0), Some(255));
    u16 => integer(Some(0), Some(65_535));
    u32 => integer(Some(0), None);
    u64 => integer(Some(0), None);
    usize => integer(Some(0), None);
    std::num::NonZeroU8 => integer(Some(1), Some(255));
    std::num::NonZeroU16 => integer(Some(1), Some(65_535));
    std::num::NonZeroU32 => integer(Some(1), None);
    std::num::NonZeroU64 => integer(Some(1), None);
    std::num::NonZeroUsize => integer(Some(1), None);
    Duration => SchemaShape::Object {
        fields: &[Field::new("secs", of::<u64>), Field::new("nanos", of::<u32>)],
        closed: false,
    };
    serde_json::Value => SchemaShape::Any;
    serde_json::Number => SchemaShape::Number;
    serde_json::Map<String, serde_json::Value> => SchemaShape::Map(of::<serde_json::Value>);
}

macro_rules! same {
    ($($ty:ty),*) => {
        $(impl<T: Schema + ?Sized> Schema for $ty {
            const SCHEMA: Node = Node::new(SchemaShape::Same(of::<T>));
        })*
    };
}

same!(&T, Box<T>, Rc<T>, Arc<T>);

impl<T: Schema + ToOwned + ?Sized> Schema for Cow<'_, T> {
    const SCHEMA: Node = Node::new(SchemaShape::Same(of::<T>));
}

impl<T: Schema> Schema for Option<T> {
    const SCHEMA: Node = Node::new(SchemaShape::Nullable(of::<T>));
}

macro_rules! arrays {
    ($($ty:ty: $unique:literal),*) => {
        $(impl<T: Schema> Schema for $ty {
            const SCHEMA: Node =
                Node::new(SchemaShape::Array { items: of::<T>, unique: $unique, length: None });
        })*
    };
}

arrays!([T]: false, Vec<T>: false, VecDeque<T>: false, BTreeSet<T>: true);

impl<T: Schema, S> Schema for HashSet<T, S> {
    const SCHEMA: Node = Node::new(SchemaShape::Array { items: of::<T>, unique: true, length: None });
}

impl<T: Schema, const N: usize> Schema for [T; N] {
    const SCHEMA: Node =
        Node::new(SchemaShape::Array { items: of::<T>, unique: false, length: Some(N as u64) });
}

impl<K, V: Schema> Schema for BTreeMap<K, V> {
    const SCHEMA: Node = Node::new(SchemaShape::Map(of::<V>));
}

impl<K, V: Schema, S> Schema for HashMap<K, V, S> {
    const SCHEMA: Node = Node::new(SchemaShape::Map(of::<V>));
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {
        $(impl<$($name: Schema),+> Schema for ($($name,)+) {
            const SCHEMA: Node = Node::new(SchemaShape::Tuple(&[$(of::<$name>),+]));
        })*
    };
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}
