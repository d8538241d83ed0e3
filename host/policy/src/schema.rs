//! JSON Schema types of a policy that the parser does not have: names used as table keys, and strings with a fixed
//! form.

use schemars::json_schema;

/// Implements [`JsonSchema`](schemars::JsonSchema) with an inlined schema.
macro_rules! inline_schema {
    ($([$($generics:tt)*] $Type:ty, $name:expr => $schema:expr;)*) => {$(
        impl<$($generics)*> ::schemars::JsonSchema for $Type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    )*};
}
pub(crate) use inline_schema;

/// Declares string types with a pattern.
macro_rules! texts {
    ($($(#[$meta:meta])* $name:ident: $pattern:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub(crate) enum $name {}

        inline_schema! { [] $name, stringify!($name) => json_schema!({"type": "string", "pattern": $pattern}); }
    )*};
}

texts! {
    /// A tool name without its plugin.
    ToolKey: "^[A-Za-z0-9_-]{1,48}$";
    /// The id of a plugin.
    PluginKey: "^[A-Za-z0-9](_?[A-Za-z0-9-]){0,60}$";
    /// The name of an MCP server.
    ServerName: "^[A-Za-z0-9](_?[A-Za-z0-9-]){0,31}$";
    /// The name of a program.
    ProgramName: "^[A-Za-z0-9_+][A-Za-z0-9._+-]*$";
    /// The name of a secret.
    SecretName: "^[A-Za-z0-9_.:@+-]+(/[A-Za-z0-9_.:@+-]+)*$";
    /// The name of a service: the part before `__` in the names of its tools.
    ServiceName: "^[A-Za-z](_?[A-Za-z0-9-]){0,23}$";
    /// The host of a registry.
    RegistryKey: "^(localhost|[^/?#@A-Z ]*[.:][^/?#@A-Z ]*)$";
    /// A JSON pointer.
    JsonPointer: "^(/.*)?$";
    /// An absolute path.
    AbsolutePath: "^/";
}

/// A command line: the absolute path of a program, and its arguments.
#[derive(Debug)]
pub(crate) enum CommandArray {}

inline_schema! {
    [] CommandArray, "Command" => json_schema!({
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "prefixItems": [{"type": "string", "pattern": "^/"}],
    });
}

/// Replaces Markdown links by their text: links of the documentation do not work in an editor.
pub(crate) fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (shown, after))) = rest.split_once('[').and_then(|(before, link)| {
        let (shown, target) = link.split_once("](")?;
        Some((before, (shown, target.split_once(')')?.1)))
    }) {
        out += before;
        out += shown;
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_no_links() {
        for (text, plain) in [
            ("as [counted](#a) here", "as counted here"),
            ("[a](b), [c](d).", "a, c."),
            ("`[limits]` and [x](y)", "`limits]` and [x"),
            ("none [of] these", "none [of] these"),
        ] {
            assert_eq!(without_links(text), plain);
        }
    }
}
