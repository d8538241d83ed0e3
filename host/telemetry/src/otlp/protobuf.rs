//! The wire format of protocol buffers, as far as OTLP needs it. Fields with a default value are not written.
//!
//! <https://protobuf.dev/programming-guides/encoding/>

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum AttributeValue<'a> {
    Text(&'a str),
    Int(u64),
    Bool(bool),
}

/// An attribute.
pub(super) type Attribute<'a> = (&'a str, AttributeValue<'a>);

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn write_varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.0.push(low & 0x7f);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    fn write_tag(&mut self, field: u32, wire_type: u8) {
        self.write_varint(u64::from(field) << 3 | u64::from(wire_type));
    }

    pub(super) fn varint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.write_tag(field, 0);
            self.write_varint(value);
        }
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.write_tag(field, 1);
            self.0.extend(value.to_le_bytes());
        }
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        if value != 0 {
            self.write_tag(field, 5);
            self.0.extend(value.to_le_bytes());
        }
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.write_tag(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.write_bytes(field, value);
        }
    }

    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn write_bytes(&mut self, field: u32, value: &[u8]) {
        self.write_tag(field, 2);
        self.write_varint(value.len() as u64);
        self.0.extend(value);
    }

    /// Writes a list of numbers of 8 bytes.
    pub(super) fn packed(&mut self, field: u32, values: impl Iterator<Item = [u8; 8]>) {
        let bytes: Vec<u8> = values.flatten().collect();
        self.bytes(field, &bytes);
    }

    /// Writes a message inside of this one, also an empty one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.write_bytes(field, &inner.0);
    }

    /// Writes a `KeyValue`.
    pub(super) fn attribute(&mut self, field: u32, (key, value): Attribute<'_>) {
        self.message(field, |pair| {
            pair.text(1, key);
            pair.message(2, |any| match value {
                AttributeValue::Text(text) => any.write_bytes(1, text.as_bytes()),
                AttributeValue::Bool(value) => {
                    any.write_tag(2, 0);
                    any.write_varint(u64::from(value));
                }
                AttributeValue::Int(value) => {
                    any.write_tag(3, 0);
                    // `AnyValue` has signed numbers.
                    any.write_varint(value.min(i64::MAX.unsigned_abs()));
                }
            });
        });
    }
}
