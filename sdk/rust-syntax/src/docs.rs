//! Converts doc comments to text.

use syn::{Attribute, Expr, Lit, Meta};

/// Returns the text of the doc comments among `attributes`, if there is any.
///
/// One leading space per line belongs to the comment. Blank lines at both ends are removed.
#[must_use]
pub fn text(attributes: &[Attribute]) -> Option<String> {
    let mut lines = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        if !pair.path.is_ident("doc") {
            continue;
        }
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(text) = &literal.lit else { continue };
        // Not `lines()`: an empty comment is an empty line.
        let text = text.value();
        lines.extend(
            text.split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()),
        );
    }
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_blank_ends_dropped() {
        let item: syn::ItemFn = syn::parse_quote! {
            /// First.
            ///
            ///  - indented
            ///
            #[inline]
            fn f() {}
        };
        assert_eq!(text(&item.attrs).as_deref(), Some("First.\n\n - indented"));
    }

    #[test]
    fn an_empty_comment_is_no_comment() {
        let item: syn::ItemFn = syn::parse_quote! {
            ///
            fn f() {}
        };
        assert_eq!(text(&item.attrs), None);
    }
}
