//! References: addresses of schemas, and the definitions that stand for their targets.

use std::collections::{BTreeSet, HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::super::keyword::Dialect;
use super::{Definitions, Extent, Node, Translator};
use crate::tool::json::extend_pointer;

/// Longest name of a definition, in characters.
const MAX_NAME: usize = 80;

/// The addresses in a schema: `$id`, `id` of draft-04, and anchors.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The address of the root.
    base: Option<String>,
    /// The pointers of embedded schemas by their addresses.
    resources: HashMap<String, String>,
    /// The pointers of embedded schemas.
    pointers: HashSet<String>,
    /// Pointers by anchor.
    anchors: HashMap<String, String>,
}

impl Addresses {
    pub(super) fn find(root: &Value, dialect: Option<Dialect>) -> Self {
        let key = if dialect == Some(Dialect::Draft4) { "id" } else { "$id" };
        let mut found = Self { base: root.get(key).and_then(Value::as_str).map(plain), ..Self::default() };
        found.collect(root, key, &mut String::new());
        found
    }

    fn collect(&mut self, node: &Value, key: &str, at: &mut String) {
        let mut inner = |step: &str, child: &Value| {
            let end = extend_pointer(at, step);
            self.collect(child, key, at);
            at.truncate(end);
        };
        match node {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, item)| inner(&n.to_string(), item));
                return;
            }
            Value::Object(map) => {
                for (name, child) in map {
                    inner(name, child);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        }
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
            self.anchors.insert(anchor.to_owned(), at.clone());
        }
        match text(key) {
            Some(id) if !at.is_empty() => match id.strip_prefix('#') {
                // Up to draft-07, an anchor.
                Some(anchor) => {
                    self.anchors.insert(anchor.to_owned(), at.clone());
                }
                None => {
                    self.resources.insert(self.absolute(&plain(id)), at.clone());
                    self.pointers.insert(at.clone());
                }
            },
            Some(_) | None => {}
        }
    }

    /// Whether the schema at this pointer has an address of its own.
    pub(super) fn is_resource(&self, pointer: &str) -> bool {
        self.pointers.contains(pointer)
    }

    /// The pointer of the innermost embedded schema that contains a pointer; empty for the root.
    pub(super) fn resource_of<'p>(&self, pointer: &'p str) -> &'p str {
        let mut inside = pointer;
        while let Some((outer, _)) = inside.rsplit_once('/') {
            inside = outer;
            if self.pointers.contains(inside) {
                return inside;
            }
        }
        ""
    }

    /// An address relative to that of the root (RFC 3986, section 5.2, without `..`).
    fn absolute(&self, address: &str) -> String {
        let Some(base) = self.base.as_deref().filter(|_| !address.contains("://")) else {
            return address.to_owned();
        };
        let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        match address.strip_prefix('/') {
            Some(path) => format!("{scheme}://{host}/{path}"),
            None if folder.is_empty() => format!("{scheme}://{host}/{address}"),
            None => format!("{scheme}://{host}/{folder}/{address}"),
        }
    }

    /// The pointer that a reference leads to, from inside of an embedded schema.
    fn resolve(&self, root: &Value, resource: &str, reference: &str) -> Result<String, &'static str> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_own = |base: &str| address == base || self.absolute(address) == base;
        let start = match address {
            "" => resource,
            _ if self.base.as_deref().is_some_and(is_own) => "",
            _ => self
                .resources
                .get(&self.absolute(address))
                .map(String::as_str)
                .ok_or("it leaves the schema")?,
        };
        let fragment = percent_decode_str(fragment).decode_utf8().map_err(|_| "it is not UTF-8")?;
        let is_schema = |pointer: &str| match root.pointer(pointer) {
            Some(Value::Object(_) | Value::Bool(_)) => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) | None => false,
        };
        let candidates = match &*fragment {
            "" => [Some(start.to_owned()), None],
            // Some generators write all pointers relative to the root.
            pointer if pointer.starts_with('/') => {
                [Some(format!("{start}{pointer}")), Some(pointer.to_owned())]
            }
            anchor => [self.anchors.get(anchor).cloned(), None],
        };
        candidates.into_iter().flatten().find(|pointer| is_schema(pointer)).ok_or("it has no target")
    }
}

/// An address without an empty fragment.
fn plain(address: &str) -> String {
    address.strip_suffix('#').unwrap_or(address).to_owned()
}

impl Definitions {
    /// The number and the name of the definition for a pointer.
    fn add(&mut self, pointer: &str) -> (usize, String) {
        if let Some(known) = self.by_pointer.get(pointer) {
            let name = self.pointers.get(known - 1).map(|(_, name)| name.clone()).unwrap_or_default();
            return (*known, name);
        }
        let last = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
        let escape = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
        let wanted: String = last.chars().take(MAX_NAME).map(escape).collect();
        let wanted = if wanted.is_empty() { "schema".to_owned() } else { wanted };
        let mut name = wanted.clone();
        // The number of definitions is beyond every number in use, so the loop ends soon.
        let mut number = self.pointers.len() + 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        self.pointers.push((pointer.to_owned(), name.clone()));
        self.by_pointer.insert(pointer.to_owned(), self.pointers.len());
        (self.pointers.len(), name)
    }

    /// The pointers of references whose removal leaves no cycle on the same value.
    pub(super) fn cycles(&self) -> BTreeSet<String> {
        let mut next: HashMap<usize, Vec<(usize, &str)>> = HashMap::new();
        for (from, to, pointer) in &self.edges {
            next.entry(*from).or_default().push((*to, pointer));
        }
        let (mut found, mut done, mut open) = (BTreeSet::new(), HashSet::new(), HashSet::new());
        for start in 0..=self.pointers.len() {
            // A definition with the number of its next edge.
            let mut path = vec![(start, 0)];
            open.insert(start);
            while let Some((at, edge)) = path.last_mut() {
                let (from, number) = (*at, *edge);
                *edge += 1;
                match next.get(&from).and_then(|edges| edges.get(number)) {
                    _ if done.contains(&from) => _ = path.pop(),
                    Some((to, pointer)) if open.contains(to) => {
                        found.insert((*pointer).to_owned());
                    }
                    Some((to, _)) if !done.contains(to) => {
                        open.insert(*to);
                        path.push((*to, 0));
                    }
                    Some(_) => {}
                    None => {
                        open.remove(&from);
                        done.insert(from);
                        path.pop();
                    }
                }
            }
            open.clear();
        }
        found
    }
}

impl Translator<'_> {
    /// Translates a reference to one into `$defs`, or to the root.
    pub(super) fn reference(&mut self, value: &Value, node: &mut Node<'_>) {
        let Some(reference) = value.as_str() else { return self.lose("it is not a text") };
        if self.extent == Extent::Outline {
            return self.lose("");
        }
        if self.banned.contains(&self.at) {
            return self.lose("it leads back to itself on the same value");
        }
        let source = self.source;
        let pointer = match source.addresses.resolve(source.root, &node.place.resource, reference) {
            Ok(pointer) => pointer,
            Err(why) => return self.lose(why),
        };
        self.references += 1;
        let (number, target) = match pointer.as_str() {
            "" => (0, "#".to_owned()),
            pointer => {
                let (number, name) = self.definitions.add(pointer);
                (number, format!("#/$defs/{name}"))
            }
        };
        if node.place.same_value {
            self.definitions.edges.push((node.place.definition, number, self.at.clone()));
        }
        // Next to another kind of reference.
        if node.out.contains_key("$ref") {
            return super::keywords::add_to_all_of(&mut node.out, serde_json::json!({ "$ref": target }));
        }
        node.set("$ref", Value::from(target));
    }
}
