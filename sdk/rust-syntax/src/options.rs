//! The options of `#[tool(…)]` that every tool has.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprLit, Lit, LitInt, LitStr, Result, Token};

use crate::contract::TRAITS;
use crate::suggestion;

/// Keys that take a value.
pub const KEYS: [&str; 6] = ["name", "title", "toolset", "tags", "max_result_chars", "timeout_ms"];

/// The options that every tool has.
#[derive(Debug, Default)]
pub struct CommonOptions {
    /// The name; by default the function's.
    pub name: Option<LitStr>,
    /// The title for people.
    pub title: Option<LitStr>,
    /// The group label.
    pub toolset: Option<LitStr>,
    /// The labels.
    pub tags: Vec<LitStr>,
    /// The longest result, in characters.
    pub max_result_chars: Option<LitInt>,
    /// The timeout of a call, in milliseconds.
    pub timeout_ms: Option<LitInt>,
    /// The flags, each one of [`TRAITS`].
    pub traits: Vec<Ident>,
}

impl CommonOptions {
    /// Parses the value of `key` if it is one of these options. Returns whether it was.
    ///
    /// # Errors
    /// The value is wrong, or the key is given twice.
    pub fn parse(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<bool> {
        match key.to_string().as_str() {
            "name" => once(&mut self.name, key, input)?,
            "title" => once(&mut self.title, key, input)?,
            "toolset" => once(&mut self.toolset, key, input)?,
            "max_result_chars" => above_zero(&mut self.max_result_chars, key, input)?,
            "timeout_ms" => above_zero(&mut self.timeout_ms, key, input)?,
            "tags" => {
                input.parse::<Token![=]>()?;
                self.tags.extend(strings(&input.parse::<Expr>()?)?);
            }
            word if TRAITS.contains(&word) => self.traits.push(key.clone()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses `key …, key …` with a function that parses what follows each key.
///
/// # Errors
/// A key or its value is wrong.
pub fn each(
    input: ParseStream<'_>,
    mut parse: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
) -> Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        parse(&key, input)?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// Parses `= value` into an empty slot.
///
/// # Errors
/// The value is of another kind, or the slot is not empty.
pub fn once<T: Parse>(slot: &mut Option<T>, key: &Ident, input: ParseStream<'_>) -> Result<()> {
    input.parse::<Token![=]>()?;
    if slot.replace(input.parse()?).is_some() {
        return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
    }
    Ok(())
}

/// Parses `= number` into an empty slot. Zero would let nothing pass: an option is left out for no limit.
///
/// # Errors
/// As [`once`], or the number is out of range.
pub fn above_zero(slot: &mut Option<LitInt>, key: &Ident, input: ParseStream<'_>) -> Result<()> {
    once(slot, key, input)?;
    match slot {
        Some(number) if !number.base10_parse::<u32>().is_ok_and(|number| number > 0) => {
            let most = u32::MAX;
            Err(syn::Error::new(number.span(), format!("write a number from 1 to {most}, or leave it out")))
        }
        _ => Ok(()),
    }
}

/// Returns the error for an unknown option. `more` are the crate's keys, `others` words of
/// another kind, and `end` ends the message.
#[must_use]
pub fn unknown(key: &Ident, more: &[&str], others: &[&str], end: &str) -> syn::Error {
    let traits = TRAITS.join("`, `");
    let keys = [&KEYS, more].concat().join("`, `");
    let all = TRAITS.into_iter().chain(KEYS).chain([more, others].concat());
    let suggested = suggestion::of(&key.to_string(), all);
    let message = format!(
        "unknown option `{key}`{suggested}; known are the traits `{traits}`, the options `{keys}`{end}"
    );
    syn::Error::new(key.span(), message)
}

/// Returns the source of an `Option`.
pub fn option<T: quote::ToTokens>(value: Option<T>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// Returns the strings of `"a"` or `["a", "b"]`.
///
/// # Errors
/// Fails if the value is neither a string nor a list of strings.
pub fn strings(value: &Expr) -> Result<Vec<LitStr>> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(vec![text.clone()]),
        Expr::Array(array) => {
            array.elems.iter().map(strings).collect::<Result<Vec<_>>>().map(|all| all.concat())
        }
        other => Err(syn::Error::new_spanned(other, "write a string, or an array of strings")),
    }
}
