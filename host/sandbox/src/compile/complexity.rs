//! Estimates the compile cost of a component in one pass, before the compiler sees it.
//!
//! The size of a component says little about its cost, because the compiler's work grows with products of counts within
//! functions. This module counts what is known to multiply, and limits it to several times what the largest real
//! components need. These are language runtimes: the numbers below are the larger of SpiderMonkey's (componentize-js,
//! 12 MB) and CPython's (componentize-py, 18 MB). `compiler` limits the total time and memory. The validator limits the
//! expansion and depth of types (a million parts, a hundred levels).

use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

use crate::compile::CompileError;

/// Maximum number of core modules and components at any depth. Real: 17.
const MAX_PARTS: u64 = 256;
/// Maximum nesting of components. Real: 2; each composition adds one.
const MAX_DEPTH: u64 = 16;
/// Maximum number of functions with a body. Real: 13,353.
const MAX_FUNCTIONS: u64 = 200_000;
/// Maximum size of a function body, in bytes. Real: 426,843, an initializer without branches.
const MAX_BODY_BYTES: u64 = 2 << 20;
/// Maximum number of locals of a function. Real: 271; unoptimized builds have a few thousand.
const MAX_LOCALS: u64 = 20_000;
/// Maximum number of blocks and branches of a function. Real: 8,919, an interpreter loop. The compile time grows
/// quadratically: 48,000 took 40 s, so 25,000 take about 10 s.
const MAX_BRANCHES: u64 = 25_000;
/// Maximum of branches times locals of a function, because the compiler may merge each local at each join. Real:
/// 426,452.
const MAX_FLOW: u64 = 5_000_000;
/// Maximum number of `br_table` targets of a function. Real: 15,805.
const MAX_TARGETS: u64 = 200_000;
/// Maximum nesting of blocks in a function. Real: 781, the arms of a `switch`.
const MAX_NESTING: u64 = 10_000;
/// Maximum number of types at any depth. Real: 1,252.
const MAX_TYPES: u64 = 100_000;
/// Maximum number of imports, exports, aliases, instances, globals and canonical functions together. Real: 8,952.
const MAX_ITEMS: u64 = 200_000;
/// Maximum number of data and element segments. Real: 10,002.
const MAX_SEGMENTS: u64 = 100_000;

/// The counts of a component.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Complexity {
    parts: u64,
    depth: u64,
    functions: u64,
    types: u64,
    items: u64,
    segments: u64,
    /// The maximum of each count over all functions.
    largest: FunctionComplexity,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct FunctionComplexity {
    body_bytes: u64,
    locals: u64,
    branches: u64,
    flow: u64,
    targets: u64,
    nesting: u64,
}

/// Refuses a component that would be too expensive to compile. The validator reports unreadable bytes.
///
/// # Errors
/// The component exceeds a limit, which the error names.
pub fn check(bytes: &[u8]) -> Result<(), CompileError> {
    let mut seen = Complexity::default();
    let mut level = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        if seen.count(&payload, &mut level).is_err() {
            return Ok(());
        }
        // Checked after each payload, so that the rest need not be read.
        seen.check_limits()?;
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
                self.largest.raise_to(&FunctionComplexity::measure(body)?);
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

    fn check_limits(&self) -> Result<(), CompileError> {
        let FunctionComplexity { body_bytes, locals, branches, flow, targets, nesting } = self.largest;
        for (found, max, what) in [
            (self.parts, MAX_PARTS, "modules and components"),
            (self.depth, MAX_DEPTH, "nested components"),
            (self.functions, MAX_FUNCTIONS, "functions"),
            (self.types, MAX_TYPES, "types"),
            (self.items, MAX_ITEMS, "imports, exports and other items"),
            (self.segments, MAX_SEGMENTS, "segments of data and elements"),
            (body_bytes, MAX_BODY_BYTES, "bytes in one function"),
            (locals, MAX_LOCALS, "locals in one function"),
            (branches, MAX_BRANCHES, "branches in one function"),
            (flow, MAX_FLOW, "branches times locals in one function"),
            (targets, MAX_TARGETS, "targets of `br_table` in one function"),
            (nesting, MAX_NESTING, "nested blocks"),
        ] {
            if found > max {
                return Err(CompileError::TooComplex(format!("{found} {what}; at most {max} are compiled")));
            }
        }
        Ok(())
    }
}

impl FunctionComplexity {
    fn measure(body: &FunctionBody<'_>) -> Result<Self, BinaryReaderError> {
        let mut seen = Self { body_bytes: body.range().len() as u64, ..Self::default() };
        // The size alone exceeds the limit, so the body need not be read.
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

    fn raise_to(&mut self, other: &Self) {
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
    use wasm_encoder::{
        CodeSection, Component, ConstExpr, DataSection, Function, FunctionSection, GlobalSection, GlobalType,
        Module, ModuleSection, Section, TypeSection, ValType,
    };

    use super::*;

    /// `(br_if 0 (local.get 0))`
    const BRANCH: [u8; 4] = [0x20, 0, 0x0d, 0];

    /// Checks a component with one module.
    fn refusal(module: &Module) -> String {
        let mut component = Component::new();
        component.section(&ModuleSection(module));
        check(&component.finish()).map_or_else(|error| error.to_string(), |()| "nothing".to_owned())
    }

    fn with_section(section: &impl Section) -> Module {
        let mut module = Module::new();
        module.section(section);
        module
    }

    /// A module of functions with this body.
    fn functions(count: u64, body: &Function) -> Module {
        let (mut types, mut functions) = (TypeSection::new(), FunctionSection::new());
        types.ty().function([ValType::I32], []);
        let mut code = CodeSection::new();
        for _ in 0..count {
            functions.function(0);
            code.function(body);
        }
        let mut module = Module::new();
        module.section(&types).section(&functions).section(&code);
        module
    }

    /// A module of one function with these locals, each in a group of its own, and these instructions.
    fn function(locals: u64, instructions: impl IntoIterator<Item = u8>) -> Module {
        let mut body = Function::new(vec![(1, ValType::I32); size(locals)]);
        body.raw(instructions).instructions().end();
        functions(1, &body)
    }

    fn size(count: u64) -> usize {
        usize::try_from(count).unwrap()
    }

    fn many<const N: usize>(instruction: [u8; N], count: u64) -> Vec<u8> {
        instruction.repeat(size(count))
    }

    /// Checks that the module with the largest count is compiled, and the next one refused.
    fn bounds(limit: u64, what: &str, module: impl Fn(u64) -> Module) {
        assert_eq!(refusal(&module(limit)), "nothing", "{what}");
        assert!(refusal(&module(limit + 1)).contains(what), "{what}");
    }

    #[test]
    fn the_exceeded_limit_of_a_module_is_named() {
        let mut empty = Function::new([]);
        empty.instructions().end();
        bounds(MAX_FUNCTIONS, "functions", |count| functions(count, &empty));
        bounds(MAX_SEGMENTS, "segments", |count| {
            let mut data = DataSection::new();
            for _ in 0..count {
                data.passive([]);
            }
            with_section(&data)
        });
        bounds(MAX_TYPES, "types", |count| {
            let mut types = TypeSection::new();
            (0..count).for_each(|_| types.ty().function([], []));
            with_section(&types)
        });
        bounds(MAX_ITEMS, "items", |count| {
            let mut globals = GlobalSection::new();
            let number = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
            for _ in 0..count {
                globals.global(number, &ConstExpr::i32_const(0));
            }
            with_section(&globals)
        });
    }

    #[test]
    fn the_exceeded_limit_of_a_function_is_named() {
        bounds(MAX_LOCALS, "locals", |count| function(count, []));
        bounds(MAX_BRANCHES, "branches", |count| function(0, many(BRANCH, count)));
        bounds(MAX_NESTING, "nested blocks", |count| {
            function(0, [many([0x02, 0x40], count), many([0x0b], count)].concat())
        });
        bounds(MAX_FLOW / 5000, "branches times locals", |count| function(5000, many(BRANCH, count)));
        bounds(MAX_TARGETS, "br_table", |count| {
            let mut body = Function::new([]);
            body.instructions().i32_const(0).br_table(vec![0; size(count)], 0).end();
            functions(1, &body)
        });
        // The body has a byte for the number of groups of locals, and one for its end.
        bounds(MAX_BODY_BYTES - 2, "bytes in one function", |count| function(0, many([0x01], count)));
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
    fn unreadable_bytes_are_left_to_the_validator() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\x0f", b"text"] {
            assert!(check(bytes).is_ok());
        }
    }
}
