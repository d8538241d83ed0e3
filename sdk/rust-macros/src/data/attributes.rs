//! The options of `#[serde(…)]` and `#[schemars(…)]` that affect a schema or reading.
//!
//! An unknown option that changes the JSON is an error, because the schema would be wrong. For an option that only serde
//! implements, serde reads the type.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, ExprPath, LitStr, Result, Token, Type, parenthesized};
use toolbay_sdk_syntax::limits::LimitsAttribute;

use super::rename::RenameRule;

/// The advice for a type whose JSON differs from its fields.
const BY_HAND: &str = "`#[data]` cannot write the schema of this: derive serde's traits, and write \
                       `impl toolbay_sdk::schema::Schema` by hand";

/// The options of a struct or an enum.
#[derive(Default)]
pub(super) struct ContainerOptions {
    pub(super) rename_all: Option<RenameRule>,
    pub(super) rename_all_fields: Option<RenameRule>,
    pub(super) tag: Option<String>,
    pub(super) content: Option<String>,
    pub(super) untagged: bool,
    pub(super) transparent: bool,
    pub(super) default: bool,
    pub(super) deny_unknown_fields: bool,
    /// Only serde can read the type.
    pub(super) by_serde: bool,
}

impl ContainerOptions {
    pub(super) fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut options = Self::default();
        for attribute in serde(attributes) {
            attribute.parse_nested_meta(|meta| options.parse(&meta))?;
        }
        for attribute in schemars(attributes) {
            attribute.parse_nested_meta(|meta| {
                Err(meta.error("`#[schemars(…)]` stands at fields; known are none here"))
            })?;
        }
        Ok(options)
    }

    fn parse(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name(meta).as_str() {
            "rename_all" => self.rename_all = Some(RenameRule::parse(&text(meta)?)?),
            "rename_all_fields" => self.rename_all_fields = Some(RenameRule::parse(&text(meta)?)?),
            "tag" => self.tag = Some(text(meta)?.value()),
            "content" => self.content = Some(text(meta)?.value()),
            "untagged" => self.untagged = true,
            "transparent" => self.transparent = true,
            "deny_unknown_fields" => self.deny_unknown_fields = true,
            "default" => {
                skip(meta)?;
                self.default = true;
            }
            "from" | "try_from" | "into" | "remote" => return Err(meta.error(BY_HAND)),
            // `rename` of a type, `bound`, `expecting` and `crate` do not affect its JSON.
            _ => {
                skip(meta)?;
                self.by_serde = true;
            }
        }
        Ok(())
    }
}

/// The options of a field.
#[derive(Default)]
pub(super) struct FieldOptions {
    pub(super) rename: Option<String>,
    pub(super) default: Option<FieldDefault>,
    pub(super) never_read: bool,
    pub(super) never_written: bool,
    pub(super) skip_if: Option<ExprPath>,
    pub(super) flatten: bool,
    pub(super) by_serde: bool,
    pub(super) limits: LimitsAttribute,
    pub(super) description: Option<String>,
    pub(super) with: Option<Type>,
}

/// The source of a field's default.
pub(super) enum FieldDefault {
    /// The default of its type.
    Type,
    /// A function.
    Function(ExprPath),
}

impl FieldOptions {
    pub(super) fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut options = Self::default();
        for attribute in serde(attributes) {
            attribute.parse_nested_meta(|meta| options.parse_serde(&meta))?;
        }
        for attribute in schemars(attributes) {
            attribute.parse_nested_meta(|meta| options.parse_schemars(&meta))?;
        }
        Ok(options)
    }

    fn parse_serde(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name(meta).as_str() {
            "rename" => self.rename = Some(text(meta)?.value()),
            "default" => {
                self.default = Some(match meta.input.peek(Token![=]) {
                    true => FieldDefault::Function(text(meta)?.parse()?),
                    false => FieldDefault::Type,
                });
            }
            "skip" => (self.never_read, self.never_written) = (true, true),
            "skip_deserializing" => self.never_read = true,
            "skip_serializing" => self.never_written = true,
            "skip_serializing_if" => self.skip_if = Some(text(meta)?.parse()?),
            "flatten" => (self.flatten, self.by_serde) = (true, true),
            _ => {
                skip(meta)?;
                self.by_serde = true;
            }
        }
        Ok(())
    }

    fn parse_schemars(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if let Some(key) = meta.path.get_ident()
            && self.limits.parse(key, meta.input)?
        {
            return Ok(());
        }
        match name(meta).as_str() {
            "description" => self.description = Some(text(meta)?.value()),
            "with" => (self.with, self.by_serde) = (Some(text(meta)?.parse()?), true),
            _ => {
                return Err(meta.error(
                    "unknown option; known are `range(…)`, `length(…)`, `regex(…)`, `description = \"…\"`, `with = \"…\"`",
                ));
            }
        }
        Ok(())
    }
}

/// The options of a variant.
#[derive(Default)]
pub(super) struct VariantOptions {
    pub(super) rename: Option<String>,
    pub(super) rename_all: Option<RenameRule>,
    pub(super) skip: bool,
    pub(super) by_serde: bool,
}

impl VariantOptions {
    pub(super) fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut options = Self::default();
        for attribute in serde(attributes) {
            attribute.parse_nested_meta(|meta| options.parse(&meta))?;
        }
        for attribute in schemars(attributes) {
            attribute.parse_nested_meta(|meta| {
                Err(meta.error("`#[schemars(…)]` stands at fields; known are none here"))
            })?;
        }
        Ok(options)
    }

    fn parse(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name(meta).as_str() {
            "rename" => self.rename = Some(text(meta)?.value()),
            "rename_all" => self.rename_all = Some(RenameRule::parse(&text(meta)?)?),
            "skip" => self.skip = true,
            _ => {
                skip(meta)?;
                self.by_serde = true;
            }
        }
        Ok(())
    }
}

fn serde(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("serde"))
}

/// Removes the attributes, because no derive knows them.
fn schemars(attributes: &mut Vec<Attribute>) -> Vec<Attribute> {
    let (taken, left) =
        std::mem::take(attributes).into_iter().partition(|attribute| attribute.path().is_ident("schemars"));
    *attributes = left;
    taken
}

fn name(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

/// The string after `=`.
fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    if meta.input.peek(syn::token::Paren) {
        return Err(meta.error(BY_HAND));
    }
    meta.value()?.parse()
}

/// Skips the value of an option.
fn skip(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let inner;
        parenthesized!(inner in meta.input);
        inner.parse::<proc_macro2::TokenStream>()?;
    }
    Ok(())
}
