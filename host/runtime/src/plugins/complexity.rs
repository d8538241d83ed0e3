//! What a component would cost to compile, found by reading it once, before the compiler sees it.
//!
//! The size of a component says little of that: the compiler's work grows with the product of what some functions
//! hold. So what is known to multiply is counted here and bounded, several times above what the largest real
//! components need. Those are the runtimes of languages; the numbers in the table are the larger of SpiderMonkey's
//! (componentize-js, 12 MB) and CPython's (componentize-py, 18 MB). Time and memory that compiling takes in all are
//! bounded by `compiler`; how far a component's types expand, and how deep they go, by the validator (a million
//! parts, a hundred levels).

use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

use crate::error::LoadError;

/// Most core modules and components, at any depth. Real: 17.
const MAX_PARTS: u64 = 256;
/// Deepest nesting of components. Real: 2; each composition adds one.
const MAX_DEPTH: u64 = 16;
/// Most functions with a body. Real: 13 353.
const MAX_FUNCTIONS: u64 = 200_000;
/// Largest body of a function, in bytes. Real: 426 843, an initialiser without a branch.
const MAX_BODY_BYTES: u64 = 2 << 20;
/// Most locals of a function. Real: 271; unoptimised builds have a few thousand.
const MAX_LOCALS: u64 = 20_000;
/// Most blocks and branches of a function. Real: 8 919, an interpreter's loop. The compiler's time grows with
/// the square: 48 000 took 40 s, so many take 10.
const MAX_BRANCHES: u64 = 25_000;
/// Most branches times locals of a function: at each join the compiler may have to merge each local. Real: 426 452.
const MAX_FLOW: u64 = 5_000_000;
/// Most targets of all `br_table`s of a function. Real: 15 805.
const MAX_TARGETS: u64 = 200_000;
/// Deepest nesting of blocks in a function. Real: 781, the arms of a `switch`.
const MAX_NESTING: u64 = 10_000;
/// Most types, at any depth. Real: 1 252.
const MAX_TYPES: u64 = 100_000;
/// Most imports, exports, aliases, instances, globals and canonical functions together. Real: 8 952.
const MAX_ITEMS: u64 = 200_000;
/// Most segments of data and of elements. Real: 10 002.
const MAX_SEGMENTS: u64 = 100_000;

/// What was counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Complexity {
    parts: u64,
    depth: u64,
    functions: u64,
    types: u64,
    items: u64,
    segments: u64,
    /// Each the most that one function has.
    largest: Function,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Function {
    body_bytes: u64,
    locals: u64,
    branches: u64,
    flow: u64,
    targets: u64,
    nesting: u64,
}

/// Refuses what would cost too much to compile. What cannot be read is left to the validator, which says why.
///
/// # Errors
/// Names what there is too much of.
pub(crate) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let mut seen = Complexity::default();
    let mut level = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        if seen.count(&payload, &mut level).is_err() {
            return Ok(());
        }
        // At once: what comes after it need not be read.
        seen.refuse()?;
    }
    Ok(())
}

impl Complexity {
    fn count(&mut self, payload: &Payload<'_>, level: &mut u64) -> Result<(), BinaryReaderError> {
        let (sum, count) = match payload {
            Payload::Version { .. } => {
                *level += 1;
                self.depth = self.depth.max(*level);
                (&mut self.parts, 1)
            }
            Payload::End(_) => {
                *level = level.saturating_sub(1);
                return Ok(());
            }
            Payload::CodeSectionEntry(body) => {
                self.largest.take(&Function::of(body)?);
                (&mut self.functions, 1)
            }
            Payload::TypeSection(types) => (&mut self.types, types.count()),
            Payload::CoreTypeSection(types) => (&mut self.types, types.count()),
            Payload::ComponentTypeSection(types) => (&mut self.types, types.count()),
            Payload::DataSection(segments) => (&mut self.segments, segments.count()),
            Payload::ElementSection(segments) => (&mut self.segments, segments.count()),
            Payload::ImportSection(items) => (&mut self.items, items.count()),
            Payload::ExportSection(items) => (&mut self.items, items.count()),
            Payload::GlobalSection(items) => (&mut self.items, items.count()),
            Payload::InstanceSection(items) => (&mut self.items, items.count()),
            Payload::ComponentImportSection(items) => (&mut self.items, items.count()),
            Payload::ComponentExportSection(items) => (&mut self.items, items.count()),
            Payload::ComponentAliasSection(items) => (&mut self.items, items.count()),
            Payload::ComponentInstanceSection(items) => (&mut self.items, items.count()),
            Payload::ComponentCanonicalSection(items) => (&mut self.items, items.count()),
            _ => return Ok(()),
        };
        *sum += u64::from(count);
        Ok(())
    }

    fn refuse(&self) -> Result<(), LoadError> {
        let Function { body_bytes, locals, branches, flow, targets, nesting } = self.largest;
        for (found, most, what) in [
            (self.parts, MAX_PARTS, "modules and components"),
            (self.depth, MAX_DEPTH, "components in one another"),
            (self.functions, MAX_FUNCTIONS, "functions"),
            (self.types, MAX_TYPES, "types"),
            (self.items, MAX_ITEMS, "imports, exports and other items"),
            (self.segments, MAX_SEGMENTS, "segments of data and elements"),
            (body_bytes, MAX_BODY_BYTES, "bytes in one function"),
            (locals, MAX_LOCALS, "locals in one function"),
            (branches, MAX_BRANCHES, "branches in one function"),
            (flow, MAX_FLOW, "branches times locals in one function"),
            (targets, MAX_TARGETS, "targets of `br_table` in one function"),
            (nesting, MAX_NESTING, "blocks in one another"),
        ] {
            if found > most {
                return Err(LoadError::TooComplex(format!("{found} {what}; at most {most} are compiled")));
            }
        }
        Ok(())
    }
}

impl Function {
    fn of(body: &FunctionBody<'_>) -> Result<Self, BinaryReaderError> {
        let mut seen = Self { body_bytes: body.range().len() as u64, ..Self::default() };
        // Larger ones are refused by that alone and need not be gone through.
        if seen.body_bytes > MAX_BODY_BYTES {
            return Ok(seen);
        }
        for locals in body.get_locals_reader()? {
            seen.locals += u64::from(locals?.0);
        }
        let mut level = 0u64;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            match operators.read()? {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                    seen.branches += 1;
                    level += 1;
                    seen.nesting = seen.nesting.max(level);
                }
                Operator::End => level = level.saturating_sub(1),
                Operator::Else | Operator::Br { .. } | Operator::BrIf { .. } | Operator::Return => {
                    seen.branches += 1;
                }
                Operator::BrTable { targets } => {
                    seen.branches += 1;
                    seen.targets += u64::from(targets.len());
                }
                _ => {}
            }
        }
        seen.flow = seen.branches.saturating_mul(seen.locals);
        Ok(seen)
    }

    fn take(&mut self, other: &Self) {
        self.body_bytes = self.body_bytes.max(other.body_bytes);
        self.locals = self.locals.max(other.locals);
        self.branches = self.branches.max(other.branches);
        self.flow = self.flow.max(other.flow);
        self.targets = self.targets.max(other.targets);
        self.nesting = self.nesting.max(other.nesting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component with a module of this text.
    fn refusal(module: &str) -> String {
        let bytes = wat::parse_str(format!("(component (core module {module}))")).unwrap();
        check(&bytes).map_or_else(|error| error.to_string(), |()| "nothing".to_owned())
    }

    #[test]
    fn what_there_is_too_much_of_is_named() {
        let many = |text: &str, count: u64| text.repeat(usize::try_from(count).unwrap());
        let most = |text: &str, count: u64, what: &str| {
            assert_eq!(refusal(&many(text, count)), "nothing", "{what}");
            assert!(refusal(&many(text, count + 1)).contains(what), "{what}");
        };
        most("(func)", MAX_FUNCTIONS, "functions");
        most("(data \"\")", MAX_SEGMENTS, "segments");
        most("(type (func))", MAX_TYPES, "types");
        most("(global i32 (i32.const 0))", MAX_ITEMS, "items");
        let inside = |text: &str, count: u64, what: &str| {
            let func = |count| refusal(&format!("(func (param i32) {})", many(text, count)));
            assert_eq!(func(count), "nothing", "{what}");
            assert!(func(count + 1).contains(what), "{what}");
        };
        inside("(local i32)", MAX_LOCALS, "locals");
        inside("(br_if 0 (local.get 0))", MAX_BRANCHES, "branches");
        assert!(
            refusal(&format!("(func {})", many("(nop)", MAX_BODY_BYTES))).contains("bytes in one function")
        );
        let nested = |count| refusal(&format!("(func {} {})", many("block ", count), many("end ", count)));
        assert_eq!(nested(MAX_NESTING), "nothing");
        assert!(nested(MAX_NESTING + 1).contains("in one another"));
        let table = format!("(func (br_table {} (i32.const 0)))", many("0 ", MAX_TARGETS + 2));
        assert!(refusal(&table).contains("br_table"));
        let flow = format!(
            "(func (param i32) {} {})",
            many("(local i32)", 5001),
            many("(br_if 0 (local.get 0))", MAX_FLOW / 5000)
        );
        assert!(refusal(&flow).contains("branches times locals"));
    }

    #[test]
    fn parts_and_depth_are_counted_at_any_level() {
        let parts = |count: usize| format!("(component {})", "(core module)".repeat(count));
        let nested = |count: usize| "(component ".repeat(count) + &")".repeat(count);
        for (text, refused) in
            [(parts(255), false), (parts(256), true), (nested(16), false), (nested(17), true)]
        {
            let bytes = wat::parse_str(&text).unwrap();
            assert_eq!(check(&bytes).is_err(), refused, "{text:.60}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_left_to_the_validator() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\x0f", b"text"] {
            assert!(check(bytes).is_ok());
        }
    }
}
